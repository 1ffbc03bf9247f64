package hostile

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hostd/hostd/tests/support/testkit"
)

// enough is greater than the number of costly operations of any kind that a
// connection is allowed to make.
const enough = 1_000_000

// TestCostlyConnectionsAreClosed checks that clients that send single bytes
// slowly, send frames without end, or read nothing lose their connections after
// a bounded number of operations, and that a neighbour's commands succeed
// meanwhile.
func TestCostlyConnectionsAreClosed(t *testing.T) {
	testkit.Long(t, "long")
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	at := strings.TrimPrefix(node.API(), "http://")
	var rows sync.WaitGroup
	for _, row := range []struct {
		name  string
		conns int
		// spend repeats a costly operation on a connection until it fails. It
		// returns the number of operations.
		spend func(net.Conn) int
	}{
		{"nothing is ever sent", 100, func(c net.Conn) int { return drip(c, "", "") }},
		{"headers come byte by byte", 100, func(c net.Conn) int { return drip(c, "POST "+entityPath+"Send HTTP/1.1\r\nHost: 127.0.0.1\r\n", "x") }},
		{"a body comes byte by byte", 100, func(c net.Conn) int {
			return drip(c, "POST "+entityPath+"Send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n", " ")
		}},
		{"headers go on and on", 4, continuations},
		{"stream after stream is reset", 2, resets},
		{"pings whose answers nobody reads", 4, pings},
	} {
		for range row.conns {
			rows.Go(func() {
				conn, err := net.Dial("tcp", at)
				if err != nil {
					t.Errorf("%s: %v", row.name, err)
					return
				}
				defer conn.Close()
				most := time.Now().Add(2 * testkit.Patience)
				conn.SetDeadline(most)
				if n := row.spend(conn); n >= enough || !time.Now().Before(most) {
					t.Errorf("%s: %d times, and the connection goes on", row.name, n)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { rows.Wait(); close(done) }()
	for {
		beside.adds()
		select {
		case <-done:
			beside.adds()
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// drip sends begin and then slowly repeats the text again, until the other end
// has closed the connection.
func drip(c net.Conn, begin, again string) (times int) {
	io.WriteString(c, begin)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		io.Copy(io.Discard, c)
	}()
	for {
		select {
		case <-gone:
			return times
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := io.WriteString(c, again); err != nil {
			return times
		}
		times++
	}
}

// open starts HTTP/2 on a connection.
func open(c net.Conn) *http2.Framer {
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	return f
}

// head returns the encoded headers of a command.
func head() []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "127.0.0.1"}, {":path", entityPath + "SendCommand"}, {"content-type", "application/json"}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}

// continuations sends headers that never end.
func continuations(c net.Conn) (times int) {
	go io.Copy(io.Discard, c)
	f := open(c)
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head()})
	var block bytes.Buffer
	for e := hpack.NewEncoder(&block); times < enough; times++ {
		block.Reset()
		e.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", times%100), Value: "y"})
		if f.WriteContinuation(1, false, block.Bytes()) != nil {
			break
		}
	}
	return times
}

// resets starts requests and resets them at once.
func resets(c net.Conn) (times int) {
	go io.Copy(io.Discard, c)
	f, block := open(c), head()
	for ; times < enough; times++ {
		id := uint32(2*times + 1)
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}) != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	return times
}

// pings sends pings and reads no answers. The node must stop reading, and must
// close the connection if the client does not read the answers.
func pings(c net.Conn) (times int) {
	for f := open(c); times < enough; times++ {
		if f.WritePing(false, [8]byte{1}) != nil {
			break
		}
	}
	return times
}
