package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// BenchmarkStream sends commands through client and server and receives their
// replies, with a fixed number of outstanding commands. The allocations include
// both sides and the fake runtime, which copies each payload once.
func BenchmarkStream(b *testing.B) {
	for _, outstanding := range []int{1, 16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("outstanding=%d", outstanding), func(b *testing.B) {
			_, addr := serve(b, rpctest.New())
			c := dial(b, addr)
			s := c.Stream(client.StreamOptions{Outstanding: outstanding})
			commands := make([]client.Command, 1024)
			for i := range commands {
				commands[i] = client.Command{
					EntityType: rpctest.Counter, EntityID: fmt.Sprintf("entity-%d", i), Name: "echo",
					Data: []byte(`{"amount":3}`), ID: fmt.Sprintf("%032d", i),
				}
			}
			var all sync.WaitGroup
			done := func(_ client.Reply, err error) {
				if err != nil {
					b.Error(err)
				}
				all.Done()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				all.Add(1)
				if err := s.Send(context.Background(), commands[i%len(commands)], done); err != nil {
					b.Fatal(err)
				}
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
			if err := s.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
