// Package collector is an OTLP/HTTP server for tests that stores the spans it
// receives.
package collector

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a received span. IDs are in hex.
type Span struct {
	Trace, ID, Parent string
	Name, Node        string
	Began, Ended      time.Time
	Failed            bool
	Attributes        map[string]any // string, int64 or bool
	Links             []Link
}

// Link is a reference from a span to another span.
type Link struct{ Trace, ID string }

// Collector is an OTLP server. It is safe for concurrent use.
type Collector struct {
	URL string // base URL, without a path

	mu      sync.Mutex
	spans   []Span
	headers http.Header // headers of the latest request
}

// Start starts a collector that stops when the test ends.
func Start(t testing.TB) *Collector {
	c := &Collector{}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body := r.Body.(io.Reader)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	var in collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &in)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = r.Header.Clone()
	for _, from := range in.ResourceSpans {
		node, _ := attributes(from.GetResource().GetAttributes())["service.instance.id"].(string)
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, taken(node, s))
			}
		}
	}
}

func taken(node string, s *tracev1.Span) Span {
	out := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name, Node: node,
		Began: time.Unix(0, int64(s.StartTimeUnixNano)), Ended: time.Unix(0, int64(s.EndTimeUnixNano)),
		Failed: s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR, Attributes: attributes(s.Attributes),
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, Link{hex.EncodeToString(l.TraceId), hex.EncodeToString(l.SpanId)})
	}
	return out
}

func attributes(list []*commonv1.KeyValue) map[string]any {
	out := make(map[string]any, len(list))
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		case *commonv1.AnyValue_BoolValue:
			out[a.Key] = v.BoolValue
		}
	}
	return out
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Header returns a header of the latest request.
func (c *Collector) Header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers.Get(name)
}

// Await waits for a span for which fits returns true, and returns that span. It
// fails the test after three minutes.
func (c *Collector) Await(t testing.TB, what string, fits func(*Span) bool) Span {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		spans := c.Spans()
		for i := range spans {
			if fits(&spans[i]) {
				return spans[i]
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: no such span came; these did: %+v", what, spans)
		}
	}
}
