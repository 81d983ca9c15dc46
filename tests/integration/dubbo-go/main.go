// dubbo-go, with what its generator would make for three methods written by hand: dubbo HOST:PORT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
	"github.com/dubbogo/gost/log/logger"
	"go.uber.org/zap"

	pb "dubbo-go/unseen/v1"
)

var background = context.Background()

type unseen struct{ connection *client.Connection }

func (u unseen) filter(request *pb.FilterRequest) (*pb.FilterReply, error) {
	reply := new(pb.FilterReply)
	return reply, u.connection.CallUnary(background, []any{request}, reply, "Filter")
}

func (u unseen) played(request *pb.RecordRequest) (*pb.RecordReply, error) {
	reply := new(pb.RecordReply)
	return reply, u.connection.CallUnary(background, []any{request}, reply, "Played")
}

func (u unseen) playedStream() (*triple_protocol.BidiStreamForClient, error) {
	stream, err := u.connection.CallBidiStream(background, "PlayedStream")
	if err != nil {
		return nil, err
	}
	return stream.(*triple_protocol.BidiStreamForClient), nil
}

func dial(address string, options ...client.ReferenceOption) (unseen, error) {
	c, err := client.NewClient(client.WithClientURL("tri://"+address), client.WithClientRequestTimeout(10*time.Second),
		client.WithClientRetries(0))
	if err != nil {
		return unseen{}, err
	}
	connection, err := c.DialWithInfo("unseen.v1.Unseen", &client.ClientInfo{
		InterfaceName: "unseen.v1.Unseen",
		MethodNames:   []string{"Filter", "Played", "PlayedStream"},
		ConnectionInjectFunc: func(any, *client.Connection) {
		},
	}, options...)
	return unseen{connection}, err
}

func check(name string, run func() error) {
	if err := run(); err != nil {
		fmt.Printf("not ok %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func asksAndRecords(u unseen) error {
	recorded, err := u.played(&pb.RecordRequest{User: "dg:1", Items: []string{"a", "c"}, Tag: 7})
	if err != nil || recorded.Count != 2 || recorded.Tag != 7 {
		return fmt.Errorf("%v, %v", recorded, err)
	}
	reply, err := u.filter(&pb.FilterRequest{User: "dg:1", Items: []string{"a", "b", "c", "d"}})
	if err != nil || !bytes.Equal(reply.Bitmap, []byte{0x50}) {
		return fmt.Errorf("%v, %v", reply, err)
	}
	return nil
}

func manyCandidates(u unseen) error {
	items := make([]string, 10000)
	for i := range items {
		items[i] = fmt.Sprintf("video:%019d", i)
	}
	reply, err := u.filter(&pb.FilterRequest{User: "dg:many", Items: items})
	if err != nil || len(reply.Bitmap) != 1250 {
		return fmt.Errorf("%d bytes, %v", len(reply.Bitmap), err)
	}
	return nil
}

func refusals(u unseen) error {
	_, err := u.filter(&pb.FilterRequest{Items: []string{"a"}})
	if triple_protocol.CodeOf(err) != triple_protocol.CodeInvalidArgument || !strings.Contains(err.Error(), "user") {
		return fmt.Errorf("%v, and not a refusal", err)
	}
	return nil
}

func stream(u unseen) error {
	plays, err := u.playedStream()
	if err != nil {
		return err
	}
	for i := uint64(1); i <= 100; i++ {
		if err := plays.Send(&pb.RecordRequest{User: "dg:s", Items: []string{fmt.Sprint(i)}, Tag: i}); err != nil {
			return err
		}
	}
	if err := plays.CloseRequest(); err != nil {
		return err
	}
	reply := new(pb.RecordReply)
	for i := uint64(1); i <= 100; i++ {
		if err := plays.Receive(reply); err != nil || reply.Tag != i || reply.Count != 1 {
			return fmt.Errorf("reply %d: %v, %v", i, reply, err)
		}
	}
	if err := plays.Receive(reply); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%v, and not the end", err)
	}
	return nil
}

func main() {
	logger.SetLogger(zap.NewNop().Sugar()) // it would write to standard output
	u, err := dial(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	check("asks and records", func() error { return asksAndRecords(u) })
	check("10,000 candidates", func() error { return manyCandidates(u) })
	check("errors", func() error { return refusals(u) })
	check("100 plays in a stream", func() error { return stream(u) })
	check("a version and a group", func() error {
		named, err := dial(os.Args[1], client.WithVersion("1.0.0"), client.WithGroup("recommenders"))
		if err != nil {
			return err
		}
		return asksAndRecords(named)
	})
}
