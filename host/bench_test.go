package host_test

import (
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/testkit"
	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that the process has taken, all threads.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStream sends durable commands over one stream with 256 in flight:
// node, client and guest share the process.
func BenchmarkStream(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run("keys="+strconv.Itoa(keys), func(b *testing.B) {
			cfg := config.Default()
			cfg.DataDir, cfg.Listen, cfg.Admin = b.TempDir(), "127.0.0.1:0", config.AdminFull
			n, err := host.Start(b.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer n.Stop(b.Context())
			for !n.Ready() {
				time.Sleep(time.Millisecond)
			}
			c, err := client.Dial("http://" + n.Addr())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Upload(b.Context(), testkit.BuildExample(b, "counter"), true); err != nil {
				b.Fatal(err)
			}
			ids := make([]string, keys)
			for i := range ids {
				ids[i] = "k" + strconv.Itoa(i)
			}
			s := c.Stream(client.StreamOptions{})
			defer s.Close(b.Context())
			var left sync.WaitGroup
			done := func(_ client.Reply, err error) {
				if err != nil {
					b.Error(err)
				}
				left.Done()
			}
			payload := []byte(`{"amount":1}`)
			send := func(n int) {
				left.Add(n)
				for i := range n {
					if err := s.Send(b.Context(), client.Command{EntityType: "counter", EntityID: ids[i%keys], Name: "add", Data: payload}, done); err != nil {
						b.Fatal(err)
					}
				}
				left.Wait()
			}
			send(2 * keys)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			send(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-us/op")
		})
	}
}
