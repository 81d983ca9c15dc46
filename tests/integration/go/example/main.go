package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "clients/unseen/v1" // made from the proto file
)

func main() {
	address := "127.0.0.1:7981"
	if named := os.Getenv("UNSEEN"); named != "" {
		address = named
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	unseen := pb.NewUnseenClient(connection)
	user := "grpc-go:u1"

	writing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = unseen.Played(writing, &pb.RecordRequest{User: user, Items: []string{"a"}})
	if err != nil {
		log.Fatal(err)
	}

	candidates := []string{"a", "b", "c"} // recalled
	asking, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	reply, err := unseen.Filter(asking,
		&pb.FilterRequest{User: user, Items: candidates, Reply: pb.FilterRequest_INDEXES})
	if err != nil {
		log.Fatal(err)
	}
	best := candidates[reply.Indexes[0]] // your ranking
	_, err = unseen.Delivered(writing, &pb.RecordRequest{User: user, Items: []string{best}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(best)
}
