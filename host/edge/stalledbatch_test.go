package edge_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// unreadBatch requests a batch of CloudEvents over a connection with an HTTP/2
// window of 0, and returns after the headers of the response, when the node is
// writing the batch.
func unreadBatch(t *testing.T, s *site) (*http2.Framer, net.Conn) {
	t.Helper()
	s.send(t, &entityv1.SendCommandRequest{EntityType: rpctest.Blob, EntityId: "b", Command: "set",
		Payload: &entityv1.SendCommandRequest_Data{Data: make([]byte, 900<<10)}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute)) // in case the server hangs
	io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "127.0.0.1"}, {":path", "/e/blob/events"}, {"accept", "application/cloudevents-batch+json"}} {
		encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
	for {
		switch frame, err := framer.ReadFrame(); f := frame.(type) {
		case nil:
			t.Fatalf("no headers: %v", err)
		case *http2.SettingsFrame:
			if !f.IsAck() {
				framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			return framer, conn
		}
	}
}

// TestUnreadBatchIsReset: a caller that does not read its batch of CloudEvents
// loses it after WriteStall, and the budget of waiting bytes gets its bytes back.
func TestUnreadBatchIsReset(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, edge.Options{WriteStall: 100 * time.Millisecond, Registerer: registry})
	framer, _ := unreadBatch(t, s)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the batch is not reset: %v", err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			break
		}
	}
	eventually(t, "the budget to be free", func() bool { return metric(t, registry, "hostd_rpc_waiting_bytes") == 0 })
}

// TestUnreadBatchKeepsItsPlace: a batch counts as a stream until it is written, so
// that the limits on streams bound the batches that nobody reads.
func TestUnreadBatchKeepsItsPlace(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := serve(t, edge.Options{WriteStall: time.Minute, MaxStreams: 1, Registerer: registry})
	_, conn := unreadBatch(t, s)
	other := func() error {
		_, err := s.events(t, &entityv1.ReadEventsRequest{EntityType: rpctest.Blob, EntityId: "b"})
		return err
	}
	if err := other(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("another stream while the batch is not read: %v", err)
	}
	if metric(t, registry, "hostd_rpc_waiting_bytes") == 0 {
		t.Error("the batch is not charged while it is not read")
	}
	conn.Close()
	eventually(t, "the place to be free", func() bool { return other() == nil })
	eventually(t, "the budget to be free", func() bool { return metric(t, registry, "hostd_rpc_waiting_bytes") == 0 })
}
