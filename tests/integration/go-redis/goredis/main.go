package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	address := "127.0.0.1:7979"
	if port := os.Getenv("PORT"); port != "" {
		address = "127.0.0.1:" + port
	}
	ctx := context.Background()
	writing := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 5 * time.Second})
	asking := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 2 * time.Second})

	if err := writing.Do(ctx, "PLAYED", "go-redis:u1", "a").Err(); err != nil {
		log.Fatal(err)
	}

	candidates := []string{"a", "b", "c"} // recalled
	unseen, err := asking.Do(ctx, "FILTER", "go-redis:u1", "REPLY", "INDEXES", "ITEMS", "a", "b", "c").Int64Slice()
	if err != nil {
		log.Fatal(err)
	}

	bitmap, err := asking.Do(ctx, "FILTER", "go-redis:u1", "REPLY", "BITMAP", "ITEMS", "a", "b", "c").Text()
	if err != nil {
		log.Fatal(err)
	}
	var same []int64
	for i := range candidates {
		if bitmap[i/8]>>(7-i%8)&1 == 1 { // a string of bytes
			same = append(same, int64(i))
		}
	}
	if !slices.Equal(same, unseen) {
		log.Fatal(same, " is not ", unseen)
	}

	best := candidates[unseen[0]] // your ranking
	if err := writing.Do(ctx, "DELIVERED", "go-redis:u1", best).Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(best)
}
