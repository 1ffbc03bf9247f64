package traces_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hostd/hostd/host/traces"
	"github.com/hostd/hostd/tests/support/collector"
)

func open(t testing.TB, o traces.ProviderOptions) (*traces.Provider, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Registerer, o.Node, o.Version = r, "n7", "1.2.3"
	p, err := traces.NewProvider(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func shut(t testing.TB, p *traces.Provider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// counts returns the counters of a registry by name.
func counts(t *testing.T, r *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int)
	for _, f := range families {
		out[f.GetName()] = int(f.GetMetric()[0].GetCounter().GetValue())
	}
	return out
}

// call makes a call with a traceparent header through the interceptor, and
// returns the span in which it ran.
func call(t *testing.T, p *traces.Provider, traceparent string) (ran trace.SpanContext) {
	t.Helper()
	i, err := p.Interceptor()
	if err != nil {
		t.Fatal(err)
	}
	h := connect.NewUnaryHandler("/a.B/C", func(ctx context.Context, _ *connect.Request[struct{}]) (*connect.Response[struct{}], error) {
		ran = trace.SpanContextFromContext(ctx)
		return connect.NewResponse(&struct{}{}), nil
	}, connect.WithInterceptors(i), connect.WithCodec(codec{}))
	s := httptest.NewServer(h)
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/a.B/C", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		req.Header.Set("Traceparent", traceparent)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, text)
	}
	return ran
}

// codec encodes empty messages.
type codec struct{}

func (codec) Name() string                { return "json" }
func (codec) Marshal(any) ([]byte, error) { return []byte("{}"), nil }
func (codec) Unmarshal([]byte, any) error { return nil }

const (
	theirTrace = "0af7651916cd43dd8448eb211c80319c"
	theirSpan  = "b7ad6b7169203331"
	sampled    = "00-" + theirTrace + "-" + theirSpan + "-01"
	unsampled  = "00-" + theirTrace + "-" + theirSpan + "-00"
)

// TestCallersDecideSampling: the caller's sampling decision applies regardless of the
// ratio. If callers are not trusted, a call starts its own trace according to
// the ratio, linked to the caller's.
func TestCallersDecideSampling(t *testing.T) {
	for name, tt := range map[string]struct {
		ratio       float64
		trust       bool
		traceparent string
		spans       int
		theirs      bool
	}{
		"theirs":            {0, true, sampled, 1, true},
		"theirs, not":       {1, true, unsampled, 0, true},
		"nobody's, never":   {0, true, "", 0, false},
		"nobody's, always":  {1, true, "", 1, false},
		"untrusted, never":  {0, false, sampled, 0, false},
		"untrusted, always": {1, false, unsampled, 1, false},
		"malformed, never":  {0, true, sampled + "x", 0, false},
	} {
		c := collector.Start(t)
		p, r := open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces", Ratio: tt.ratio, TrustRemote: tt.trust})
		ran := call(t, p, tt.traceparent)
		shut(t, p)
		got := c.Spans()
		if len(got) != tt.spans || ran.IsSampled() != (tt.spans > 0) || (ran.TraceID().String() == theirTrace) != tt.theirs {
			t.Errorf("%s: %d spans, ran in %v", name, len(got), ran)
			continue
		}
		if n := counts(t, r); n["hostd_trace_spans_ended_total"] != tt.spans || n["hostd_trace_spans_sent_total"] != tt.spans {
			t.Errorf("%s: %v", name, n)
		}
		if tt.spans == 0 {
			continue
		}
		s := got[0]
		if s.Node != "n7" || s.Name != "a.B/C" || s.ID != ran.SpanID().String() || (s.Parent == theirSpan) != tt.theirs {
			t.Errorf("%s: %+v", name, s)
		}
		if links := fmt.Sprint(s.Links); (links == fmt.Sprintf("[{%s %s}]", theirTrace, theirSpan)) != (!tt.trust && tt.traceparent != "") {
			t.Errorf("%s: links %s", name, links)
		}
	}
}

// TestMessagesFollowSamplingOfSender: the trace of a message is sampled if the command that
// sent it was, regardless of the ratio. Links of other spans have no effect.
func TestMessagesFollowSamplingOfSender(t *testing.T) {
	c := collector.Start(t)
	p, _ := open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces"})
	for name, tt := range map[string]struct {
		kind  trace.SpanKind
		flags trace.TraceFlags
		want  bool
	}{
		"a message": {trace.SpanKindConsumer, trace.FlagsSampled, true}, "not sampled": {trace.SpanKindConsumer, 0, false}, "a call": {trace.SpanKindServer, trace.FlagsSampled, false},
	} {
		link := trace.NewSpanContext(trace.SpanContextConfig{TraceID: [16]byte{1}, SpanID: [8]byte{1}, TraceFlags: tt.flags, Remote: true})
		_, span := p.Tracer().Start(t.Context(), "a", trace.WithSpanKind(tt.kind), trace.WithLinks(trace.Link{SpanContext: link}))
		if span.SpanContext().IsSampled() != tt.want {
			t.Errorf("%s: sampled %v", name, !tt.want)
		}
		span.End()
	}
	shut(t, p)
	if n := len(c.Spans()); n != 1 {
		t.Errorf("%d spans", n)
	}
}

// TestCollectorHeadersAreSent: headers are sent, and an invalid file is rejected
// with an error that does not contain its text.
func TestCollectorHeadersAreSent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# of the vendor\n\nauthorization: Bearer a:b=c\r\nX-Team:  red \n")
	c := collector.Start(t)
	p, _ := open(t, traces.ProviderOptions{URL: c.URL + "/v1/traces", HeadersFile: file, Ratio: 1})
	_, span := p.Tracer().Start(t.Context(), "a")
	span.End()
	shut(t, p)
	if a, x := c.Header("Authorization"), c.Header("X-Team"); a != "Bearer a:b=c" || x != "red" || len(c.Spans()) != 1 {
		t.Errorf("%q, %q, %d spans", a, x, len(c.Spans()))
	}
	for name, text := range map[string]string{
		"no colon": "a: 1\nsecret", "no name": ": secret", "a space in it": "a b: secret", "twice": "a: 1\nA: secret", "control": "a: sec\x01ret", "many": many(33), "large": strings.Repeat("#secret\n", 9000),
	} {
		write(text)
		_, err := traces.NewProvider(t.Context(), traces.ProviderOptions{URL: c.URL, HeadersFile: file, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := traces.NewProvider(t.Context(), traces.ProviderOptions{URL: c.URL, HeadersFile: file + "2", Registerer: prometheus.NewRegistry()}); err == nil {
		t.Error("a file that is not there is taken")
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "h%d: 1\n", i)
	}
	return b.String()
}

// TestHungCollectorBlocksNothing: a collector that does not respond blocks
// neither spans nor a stopping node. Spans that it does not accept are counted
// or dropped, and a warning is logged once.
func TestHungCollectorBlocksNothing(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-release
	}))
	defer s.Close()
	defer close(release)
	var log lines
	p, r := open(t, traces.ProviderOptions{URL: s.URL, Ratio: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const spans = 10_000 // more than the queue holds
	for range spans {
		_, span := p.Tracer().Start(t.Context(), "a")
		span.End()
	}
	shut(t, p)
	n := counts(t, r)
	if failed := n["hostd_trace_spans_failed_total"]; n["hostd_trace_spans_ended_total"] != spans || n["hostd_trace_spans_sent_total"] != 0 || failed == 0 || failed == spans {
		t.Errorf("%v", n)
	}
	if text := string(log); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "the collector does not accept spans") {
		t.Errorf("logged: %s", text)
	}
	_, span := p.Tracer().Start(t.Context(), "late")
	span.End() // ends after the node has stopped
}

// lines collects the log. Only the goroutine of the queue writes it, and that
// goroutine has ended before the test reads it.
type lines []byte

func (l *lines) Write(b []byte) (int, error) {
	*l = append(*l, b...)
	return len(b), nil
}
