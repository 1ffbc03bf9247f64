package edge_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func echoRequest(i int) *entityv1.SendCommandRequest {
	return &entityv1.SendCommandRequest{
		EntityType: "counter", EntityId: fmt.Sprintf("entity-%d", i), Command: "echo",
		Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":3}`)}, CommandId: fmt.Sprintf("%032d", i),
	}
}

// clients calls fn from n goroutines until b.N calls are made.
func clients(b *testing.B, n int, fn func(i int) error) {
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for g := range n {
		calls := b.N / n
		if g < b.N%n {
			calls++
		}
		all.Go(func() {
			for i := range calls {
				if err := fn(g*1000 + i%1000); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkUnary compares Send, run by an asynchronous executor, with an echo
// of bytes, which is the minimum work of the RPC layer.
func BenchmarkUnary(b *testing.B) {
	const parallel = 64
	b.Run("echo", func(b *testing.B) {
		mux := http.NewServeMux()
		mux.Handle("/echo", connect.NewUnaryHandler("/echo", func(_ context.Context, r *connect.Request[wrapperspb.BytesValue]) (*connect.Response[wrapperspb.BytesValue], error) {
			return connect.NewResponse(wrapperspb.Bytes(r.Msg.GetValue())), nil
		}, connect.WithCompression("gzip", nil, nil)))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: mux, Protocols: protocols}
		go server.Serve(l)
		defer server.Close()
		h2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		c := connect.NewClient[wrapperspb.BytesValue, wrapperspb.BytesValue](h2, "http://"+l.Addr().String()+"/echo", connect.WithAcceptCompression("gzip", nil, nil))
		value := make([]byte, 100)
		clients(b, parallel, func(int) error {
			_, err := c.CallUnary(context.Background(), connect.NewRequest(wrapperspb.Bytes(value)))
			return err
		})
	})
	b.Run("send", func(b *testing.B) {
		s := serve(b, edge.Options{})
		c := s.entities(connect.WithAcceptCompression("gzip", nil, nil))
		clients(b, parallel, func(i int) error {
			_, err := c.SendCommand(context.Background(), connect.NewRequest(echoRequest(i)))
			return err
		})
	})
	b.Run("send json", func(b *testing.B) {
		s := serve(b, edge.Options{})
		c := entityv1connect.NewEntityServiceClient(s.h2, s.url, connect.WithAcceptCompression("gzip", nil, nil), connect.WithProtoJSON())
		clients(b, parallel, func(i int) error {
			_, err := c.SendCommand(context.Background(), connect.NewRequest(echoRequest(i)))
			return err
		})
	})
}

// BenchmarkHandler measures the server's part of a Send without a network,
// and the echo of BenchmarkUnary for comparison.
func BenchmarkHandler(b *testing.B) {
	w := rpctest.New()
	defer w.Close()
	server := services.NewServer(w.Services(), edge.Options{NodeID: "n1"})
	echo := connect.NewUnaryHandler("/echo", func(_ context.Context, r *connect.Request[wrapperspb.BytesValue]) (*connect.Response[wrapperspb.BytesValue], error) {
		return connect.NewResponse(wrapperspb.Bytes(r.Msg.GetValue())), nil
	}, connect.WithCompression("gzip", nil, nil))
	for _, c := range []struct {
		name, path string
		handler    http.Handler
		message    proto.Message
	}{
		{"echo", "/echo", echo, wrapperspb.Bytes(make([]byte, 100))},
		{"send", entityPath + "SendCommand", server.Handler(), echoRequest(1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			body, err := proto.Marshal(c.message)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, c.path, bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/proto")
				w := httptest.NewRecorder()
				c.handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// BenchmarkRules measures the evaluation of the protos' validation rules.
// Every command would cost this much more if it were checked by these rules.
func BenchmarkRules(b *testing.B) {
	v, err := protovalidate.New()
	if err != nil {
		b.Fatal(err)
	}
	r := echoRequest(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Validate(r); err != nil {
			b.Fatal(err)
		}
	}
}
