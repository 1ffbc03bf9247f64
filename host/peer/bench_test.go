package peer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
)

// BenchmarkFrames sends frames from one node to another over loopback as fast
// as they arrive. Both nodes share the machine.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkFrames(b, size) })
	}
}

// receiveFunc is called for each frame.
type receiveFunc func()

func (f receiveFunc) Receive(sharding.NodeID, []byte) { f() }
func (receiveFunc) Turns() uint64                     { return 0 }

func benchmarkFrames(b *testing.B, size int) {
	const every = 8 // frames that arrive between two checks of the window
	var arrived atomic.Int64
	room := make(chan struct{}, 1)
	sender := start(b, network.TCP{}, "127.0.0.1:0", "a")
	defer sender.stop(b)
	receiver := start(b, network.TCP{}, "127.0.0.1:0", "b", func(o *peer.Options) {
		o.Raft = receiveFunc(func() {
			if arrived.Add(1)%every == 0 {
				select {
				case room <- struct{}{}:
				default:
				}
			}
		})
	})
	defer receiver.stop(b)
	connectAll(sender, receiver)
	sender.untilState(b, "b", "heard")
	// Half of the queue, so that no frame is dropped.
	window := int64(min(4096, 8<<20/size))
	frame := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for sent := int64(0); sent < int64(b.N); sent++ {
		for sent-arrived.Load() >= window {
			<-room // each value is an eighth of the window
		}
		sender.Send("b", frame)
	}
	for arrived.Load() < int64(b.N) {
		select {
		case <-room:
		case <-time.After(time.Millisecond):
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	if n := sender.DroppedFrames("b"); n != 0 {
		b.Errorf("%d frames were dropped", n)
	}
}
