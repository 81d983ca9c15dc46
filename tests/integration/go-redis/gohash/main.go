package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/zeebo/xxh3"
)

const seed, fingerprint = 0x0123456789abcdef, "07f90ff4" // once, by hand, from SEED

func main() {
	address := "127.0.0.1:7979"
	if port := os.Getenv("PORT"); port != "" {
		address = "127.0.0.1:" + port
	}
	candidates := []string{"a", "b", "c"}
	var hashes []byte
	for _, item := range candidates {
		hashes = binary.LittleEndian.AppendUint64(hashes, xxh3.HashStringSeed(item, seed)) // keep it beside the item
	}
	asking := redis.NewClient(&redis.Options{Addr: address})
	unseen, err := asking.Do(context.Background(), "FILTER", "hash-go:u1", "REPLY", "INDEXES",
		"SEED", fingerprint, "HASHES", hashes).Int64Slice()
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range unseen {
		fmt.Println(candidates[i])
	}
}
