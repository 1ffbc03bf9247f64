package traces_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hostd/hostd/host/traces"
	"github.com/hostd/hostd/tests/support/collector"
)

// unary returns a function that makes a call through the interceptor of a
// provider, and reports whether the call ran in a sampled span.
func unary(t testing.TB, p *traces.Provider) func(*connect.Request[struct{}]) bool {
	t.Helper()
	i, err := p.Interceptor()
	if err != nil {
		t.Fatal(err)
	}
	var sampled bool
	res := connect.NewResponse(&struct{}{})
	do := i.WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
		sampled = trace.SpanContextFromContext(ctx).IsSampled()
		return res, nil
	})
	ctx := t.Context()
	return func(req *connect.Request[struct{}]) bool {
		if _, err := do(ctx, req); err != nil {
			t.Fatal(err)
		}
		return sampled
	}
}

// TestSamplingRatioOfCalls: if callers don't decide, the ratio of traced calls is as
// configured, and an untraced call allocates nothing.
func TestSamplingRatioOfCalls(t *testing.T) {
	c := collector.Start(t)
	for _, trust := range []bool{true, false} {
		p, _ := open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces", Ratio: 0.5, TrustRemote: trust})
		call := unary(t, p)
		const calls = 1000
		traced := 0
		for range calls {
			if call(connect.NewRequest(&struct{}{})) {
				traced++
			}
		}
		// The standard deviation is 16.
		if traced < 400 || traced > 600 {
			t.Errorf("trust %v: of %d calls %d are traced", trust, calls, traced)
		}
		shut(t, p)

		p, _ = open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces", TrustRemote: trust})
		call = unary(t, p)
		req := connect.NewRequest(&struct{}{})
		if n := testing.AllocsPerRun(100, func() {
			if call(req) {
				t.Error("a call is traced")
			}
		}); n != 0 {
			t.Errorf("trust %v: %v allocations for a call that is not traced", trust, n)
		}
		shut(t, p)
	}
}

// TestCallSpansHaveStableAttributes calls a procedure over two protocols.
// Queries of traces depend on these names, which the page on traces lists.
func TestCallSpansHaveStableAttributes(t *testing.T) {
	c := collector.Start(t)
	p, _ := open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces", Ratio: 1})
	i, err := p.Interceptor()
	if err != nil {
		t.Fatal(err)
	}
	const procedure = "/hostd.test.v1.TestService/Get"
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[emptypb.Empty], error) {
		if r.Msg.GetValue() == "absent" {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("absent"))
		}
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, connect.WithInterceptors(i)))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, call := range []struct {
		option connect.ClientOption
		system string
	}{{connect.WithProtoJSON(), "connectrpc"}, {connect.WithGRPC(), "grpc"}} {
		client := connect.NewClient[wrapperspb.StringValue, emptypb.Empty](server.Client(), server.URL+procedure, call.option)
		for value, want := range map[string]map[string]any{
			"there":  {"rpc.system.name": call.system, "rpc.method": procedure[1:], "rpc.response.status_code": "OK"},
			"absent": {"rpc.system.name": call.system, "rpc.method": procedure[1:], "rpc.response.status_code": "NOT_FOUND", "error.type": "NOT_FOUND"},
		} {
			if _, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String(value))); (err != nil) != (value == "absent") {
				t.Fatal(err)
			}
			c.Await(t, fmt.Sprintf("a span of %s with %v", call.system, want), func(s *collector.Span) bool {
				return s.Name == procedure[1:] && maps.Equal(s.Attributes, want)
			})
		}
	}
	shut(t, p)
}

// BenchmarkCalls measures what tracing adds to a call, with no calls traced and
// with one in a hundred.
func BenchmarkCalls(b *testing.B) {
	c := collector.Start(b)
	for _, ratio := range []float64{0, 0.01} {
		b.Run(fmt.Sprint("ratio=", ratio), func(b *testing.B) {
			p, _ := open(b, traces.ProviderOptions{URL: c.URL + "/v1/traces", TrustRemote: true, Ratio: ratio})
			call := unary(b, p)
			req := connect.NewRequest(&struct{}{})
			b.ReportAllocs()
			for b.Loop() {
				call(req)
			}
			b.StopTimer()
			shut(b, p)
		})
	}
}
