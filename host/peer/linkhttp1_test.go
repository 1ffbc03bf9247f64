package peer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/sharding"
)

// linkTo connects a to b through a server that counts the requests for links by
// their version of HTTP. If decline is not nil, it answers the requests for
// links over HTTP/1.1 instead of b.
func linkTo(t *testing.T, frames int, decline func(a *node)) (links [3]int32) {
	t.Helper()
	var a *node
	var current http.Handler
	var count [3]atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == peerv1connect.PeerServiceLinkProcedure {
			count[r.ProtoMajor].Add(1)
			if r.ProtoMajor == 1 && decline != nil {
				decline(a)
				w.WriteHeader(http.StatusHTTPVersionNotSupported) // as connect-go does
				return
			}
		}
		current.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	defer server.Close()
	a = start(t, network.TCP{}, "127.0.0.1:0", "a")
	defer a.stop(t)
	b := start(t, network.TCP{}, "127.0.0.1:0", "b")
	defer b.stop(t)
	_, current = b.Handler()
	server.Start()
	a.SetAddresses(map[sharding.NodeID]string{"b": strings.TrimPrefix(server.URL, "http://")})
	if decline == nil {
		sendFrames(a, frames)
	}
	b.until(t, "frames", func() bool { return len(b.frames) == frames })
	for i, f := range b.frames {
		if f.from != "a" || f.data != fmt.Sprint("frame ", i) {
			t.Fatalf("frame %d is %q from %s", i, f.data, f.from)
		}
	}
	return [3]int32{1: count[1].Load(), 2: count[2].Load()}
}

func sendFrames(a *node, frames int) {
	for i := range frames {
		a.Send("b", fmt.Append(nil, "frame ", i))
	}
}

func TestLinkUsesHTTP1(t *testing.T) {
	if links := linkTo(t, 1000, nil); links != [3]int32{1: 1} {
		t.Errorf("links over HTTP/1.1 and HTTP/2: %v, want one over HTTP/1.1", links[1:])
	}
}

// Nodes of earlier releases serve links over HTTP/2 only. The attempt over
// HTTP/1.1 that precedes such a link loses no frame.
func TestLinkToNodeThatDeclinesHTTP1(t *testing.T) {
	const frames = 100
	links := linkTo(t, frames, func(a *node) { sendFrames(a, frames) })
	if links != [3]int32{1: 1, 2: 1} {
		t.Errorf("links over HTTP/1.1 and HTTP/2: %v, want one attempt each", links[1:])
	}
}
