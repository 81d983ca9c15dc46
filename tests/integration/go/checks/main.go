// grpc-go: checks HOST:PORT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "clients/unseen/v1"
)

var (
	background = context.Background()
	connection *grpc.ClientConn
	unseen     pb.UnseenClient
)

func check(name string, run func() error) {
	if err := run(); err != nil {
		fmt.Printf("not ok %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func same(found, wanted any) error {
	if !reflect.DeepEqual(found, wanted) {
		return fmt.Errorf("%v, and not %v", found, wanted)
	}
	return nil
}

func refused(err error, code codes.Code) error {
	if status.Code(err) != code || status.Convert(err).Message() == "" {
		return fmt.Errorf("%v, and not %v with a text", err, code)
	}
	return nil
}

func asksAndRecords() error {
	recorded, err := unseen.Played(background, &pb.RecordRequest{User: "go:1", Items: []string{"a", "c"}, Tag: 7})
	if err != nil || recorded.Count != 2 || recorded.Tag != 7 {
		return fmt.Errorf("%v, %v", recorded, err)
	}
	request := &pb.FilterRequest{User: "go:1", Items: []string{"a", "b", "c", "d"}}
	reply, err := unseen.Filter(background, request)
	if err != nil || !bytes.Equal(reply.Bitmap, []byte{0x50}) {
		return fmt.Errorf("%v, %v", reply, err)
	}
	request.Reply = pb.FilterRequest_INDEXES
	reply, err = unseen.Filter(background, request)
	if err != nil {
		return err
	}
	return same(reply.Indexes, []uint32{1, 3})
}

func candidates() []string {
	items := make([]string, 10000)
	for i := range items {
		items[i] = fmt.Sprintf("video:%019d", i)
	}
	return items
}

func manyCandidates(options ...grpc.CallOption) func() error {
	return func() error {
		reply, err := unseen.Filter(background, &pb.FilterRequest{User: "go:many", Items: candidates()}, options...)
		if err != nil {
			return err
		}
		return same(len(reply.Bitmap), 1250)
	}
}

func stream() error {
	plays, err := unseen.PlayedStream(background)
	if err != nil {
		return err
	}
	go func() {
		for i := 1; i <= 2000; i++ {
			plays.Send(&pb.RecordRequest{User: fmt.Sprintf("go:s%d", i%10), Items: []string{fmt.Sprint(i)}, Tag: uint64(i)})
		}
		plays.CloseSend()
	}()
	for i := 1; i <= 2000; i++ {
		reply, err := plays.Recv()
		if err != nil || reply.Tag != uint64(i) || reply.Count != 1 {
			return fmt.Errorf("reply %d: %v, %v", i, reply, err)
		}
	}
	if _, err := plays.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%v, and not the end", err)
	}
	return nil
}

func deadline() error {
	soon, cancel := context.WithTimeout(background, 500*time.Millisecond)
	defer cancel()
	plays, err := unseen.PlayedStream(soon)
	if err != nil {
		return err
	}
	if err := plays.Send(&pb.RecordRequest{User: "go:d", Items: []string{"a"}, Tag: 1}); err != nil {
		return err
	}
	if _, err := plays.Recv(); err != nil {
		return err
	}
	_, err = plays.Recv() // the stream is held open
	return refused(err, codes.DeadlineExceeded)
}

func errorsByStatus() error {
	_, noUser := unseen.Filter(background, &pb.FilterRequest{Items: []string{"a"}})
	_, noItems := unseen.Filter(background, &pb.FilterRequest{User: "go:e"})
	_, future := unseen.Played(background, &pb.RecordRequest{User: "go:e", Items: []string{"a"}, At: 4102444800001})
	_, nobody := unseen.History(background, &pb.HistoryRequest{User: "go:nobody"})
	unknown := connection.Invoke(background, "/unseen.v1.Unseen/Nonsense", &pb.FilterRequest{}, &pb.FilterReply{})
	return errors.Join(refused(noUser, codes.InvalidArgument), refused(noItems, codes.InvalidArgument),
		refused(future, codes.OutOfRange), refused(nobody, codes.NotFound), refused(unknown, codes.Unimplemented))
}

func health() error {
	client := grpc_health_v1.NewHealthClient(connection)
	answer, err := client.Check(background, &grpc_health_v1.HealthCheckRequest{Service: "unseen.v1.Unseen"})
	if err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%v, %v", answer, err)
	}
	watching, stop := context.WithCancel(background)
	defer stop()
	watch, err := client.Watch(watching, &grpc_health_v1.HealthCheckRequest{Service: "other"})
	if err != nil {
		return err
	}
	if answer, err = watch.Recv(); err != nil {
		return err
	}
	return same(answer.Status, grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN)
}

func manyCallsAtOnce() error {
	ended := make(chan error)
	for i := 0; i < 500; i++ {
		go func() {
			reply, err := unseen.Filter(background, &pb.FilterRequest{User: fmt.Sprintf("go:c%d", i), Items: []string{"a", "b"}})
			if err == nil {
				err = same(reply.Bitmap, []byte{0xc0})
			}
			ended <- err
		}()
	}
	var all error
	for i := 0; i < 500; i++ {
		all = errors.Join(all, <-ended)
	}
	return all
}

func main() {
	var err error
	connection, err = grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, PermitWithoutStream: true}))
	if err != nil {
		panic(err)
	}
	unseen = pb.NewUnseenClient(connection)
	check("asks and records", asksAndRecords)
	check("10,000 candidates", manyCandidates())
	check("gzip", manyCandidates(grpc.UseCompressor(gzip.Name)))
	check("2,000 plays in a stream", stream)
	check("a deadline", deadline)
	check("errors by status", errorsByStatus)
	check("health", health)
	check("500 calls at once", manyCallsAtOnce)
}
