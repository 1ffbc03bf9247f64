package memnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/memnet"
)

var _ network.Network = (*memnet.Host)(nil)

// dial returns both ends of a connection from a to b.
func dial(t *testing.T, n *memnet.Network) (near, far net.Conn, l net.Listener) {
	t.Helper()
	l, err := n.Host("b").Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	near, err = n.Host("a").Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return near, far, l
}

func inBubble(t *testing.T, test func(t *testing.T, n *memnet.Network)) {
	synctest.Test(t, func(t *testing.T) { test(t, memnet.New()) })
}

// read calls Read once and waits for at most d.
func read(c net.Conn, d time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(d))
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestBytesArriveInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, _ := dial(t, n)
		want := make([]byte, 40<<20) // more than the buffer of a pipe
		rand.NewChaCha8([32]byte{}).Read(want)
		go func() {
			for rest := want; len(rest) > 0; {
				k := min(len(rest), 1+rand.IntN(1<<20))
				near.Write(rest[:k])
				rest = rest[k:]
			}
			near.Close()
		}()
		got, err := io.ReadAll(far)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("write to a closed end: %v", err)
		}
	})
}

func TestCutIsDirected(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, l := dial(t, n)
		n.Cut("a", "b")
		cut := time.Now()
		near.Write([]byte("late"))
		far.Write([]byte("through"))
		if got, err := read(near, time.Second); got != "through" || err != nil {
			t.Errorf("against the cut: %q, %v", got, err)
		}
		if got, err := read(far, time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over the cut: %q, %v", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.Host("a").Dial(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial over the cut: %v", err)
		}
		near.Close()
		if got, err := read(far, time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the end over the cut: %q, %v", got, err)
		}
		time.Sleep(time.Hour)
		n.HealAll()
		healed := time.Now()
		if _, err := n.Host("a").Dial(t.Context(), l.Addr().String()); err != nil || time.Since(healed) != 0 {
			t.Errorf("a new connection: %v after %v", err, time.Since(healed))
		}
		if got, err := read(far, time.Hour); got != "late" || err != nil || time.Since(healed) != 2*time.Minute {
			t.Errorf("after a cut of %v: %q, %v %v later", healed.Sub(cut), got, err, time.Since(healed))
		}
		if _, err := read(far, time.Hour); !errors.Is(err, io.EOF) {
			t.Errorf("the end, healed: %v", err)
		}
	})
}

func TestPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, _ := dial(t, n)
		n.Host("c")
		n.Partition([]string{"a", "c"}, []string{"b"})
		near.Write([]byte("x"))
		far.Write([]byte("y"))
		for _, c := range []net.Conn{near, far} {
			if got, err := read(c, time.Second); err == nil {
				t.Errorf("%q came over", got)
			}
		}
		n.Partition([]string{"a", "b"}, []string{"c"})
		if got, err := read(far, 5*time.Second); got != "x" {
			t.Errorf("within a group: %q, %v", got, err)
		}
	})
}

func TestDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, _ := dial(t, n)
		n.Delay("a", "b", 300*time.Millisecond)
		began := time.Now()
		near.Write([]byte("x"))
		near.Close()
		if got, err := read(far, time.Second); got != "x" || err != nil || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		if _, err := read(far, time.Second); !errors.Is(err, io.EOF) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("the end: %v after %v", err, time.Since(began))
		}
	})
}

func TestBreakAndKill(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, l := dial(t, n)
		n.Break("b", "a")
		for _, c := range []net.Conn{near, far} {
			if _, err := read(c, time.Second); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read of a broken connection: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write to a broken connection: %v", err)
			}
			c.Close()
		}
		near, _, _ = dial(t, n)
		n.Host("b").Kill()
		if _, err := read(near, time.Second); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read from a killed host: %v", err)
		}
		if _, err := n.Host("a").Dial(t.Context(), l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial of a killed host: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept on a killed host: %v", err)
		}
		if _, err := n.Host("b").Listen(l.Addr().String()); err != nil {
			t.Errorf("a new process listens: %v", err)
		}
	})
}

func TestFreeze(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, l := dial(t, n)
		n.Host("b").Freeze()
		near.Write([]byte("to"))
		far.Write([]byte("from"))
		if _, err := n.Host("a").Dial(t.Context(), l.Addr().String()); err != nil {
			t.Errorf("the kernel of a frozen host: %v", err)
		}
		for _, c := range []net.Conn{near, far} {
			if got, err := read(c, time.Hour); err == nil {
				t.Errorf("%q from or to a frozen host", got)
			}
		}
		n.Host("b").Thaw()
		if got, _ := read(near, time.Second); got != "from" {
			t.Errorf("thawed: %q", got)
		}
		if got, _ := read(far, time.Second); got != "to" {
			t.Errorf("thawed: %q", got)
		}
		if _, err := l.Accept(); err != nil {
			t.Error(err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, n *memnet.Network) {
		near, far, _ := dial(t, n)
		began := time.Now()
		time.AfterFunc(time.Second, func() { near.SetReadDeadline(time.Unix(1, 0)) })
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a deadline in the past, set under a read: %v after %v", err, time.Since(began))
		}
		far.Write([]byte("x"))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read behind its deadline: %v", err)
		}
		near.SetReadDeadline(time.Time{})
		if _, err := near.Read(make([]byte, 1)); err != nil {
			t.Errorf("a read without a deadline: %v", err)
		}
		near.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := near.Write(make([]byte, 32<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write to a full pipe: %v", err)
		}
		var timeout net.Error
		if _, err := near.Write([]byte("x")); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		time.AfterFunc(time.Second, func() { far.Close() })
		far.SetReadDeadline(time.Time{})
		io.Copy(io.Discard, far)
		if err := far.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a second close: %v", err)
		}
	})
}

func TestListen(t *testing.T) {
	n := memnet.New()
	a := n.Host("a")
	if a != n.Host("a") {
		t.Error("a host has two")
	}
	l, err := a.Listen("a:1")
	if err != nil || l.Addr().String() != "a:1" {
		t.Fatal(err)
	}
	if _, err := a.Listen(":1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	if _, err := a.Listen("b:1"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("another host's address: %v", err)
	}
	if _, err := a.Dial(t.Context(), "nowhere:1"); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("dial nowhere: %v", err)
	}
	l.Close()
	if _, err := a.Listen(":1"); err != nil {
		t.Errorf("after close: %v", err)
	}
}
