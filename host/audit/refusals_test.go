package audit

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// refusedLines writes the lines about n requests that were rejected because of
// their credential, all in the same second.
func refusedLines(t *testing.T, n int, address func(i int) string, path string) string {
	t.Helper()
	file := logPath(t)
	now := time.Unix(1_700_000_000, 0)
	l, stop := started(t, Options{Path: file, Node: "n1", Now: func() time.Time { return now }})
	calls := NewCalls(l, CallOptions{Passed: never})
	for i := range n {
		r := httptest.NewRequest("POST", "/x", nil)
		r.URL = &url.URL{Path: path}
		r.RemoteAddr = address(i)
		calls.RecordRefused(r, "missing")
	}
	stop()
	return read(t, file)
}

// TestCallersWithoutIdentityGetFewLines: a client without a credential cannot
// rotate the log away, with any number of addresses of its IPv6 network, and many
// clients cannot either.
func TestCallersWithoutIdentityGetFewLines(t *testing.T) {
	for _, tt := range []struct {
		name    string
		address func(i int) string
		want    int
	}{
		{"one IPv4 address", func(i int) string { return fmt.Sprint("192.0.2.1:", 1000+i) }, 2},
		{"one IPv6 network", func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1000", i+1) }, 2},
		{"two IPv6 networks", func(i int) string { return fmt.Sprintf("[2001:db8:0:%x::1]:1000", i%2) }, 4},
		{"many addresses", func(i int) string { return fmt.Sprintf("10.0.%d.%d:1000", i/256, i%256) }, 64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := refusedLines(t, 1000, tt.address, "/hostd.cluster.v1.ClusterService/GetCluster")
			if n := strings.Count(text, `"code":"unauthenticated"`); n != tt.want {
				t.Errorf("%d lines, want %d", n, tt.want)
			}
		})
	}
}

// TestEscapesCountForTheBoundOfAText: a text is truncated so that it has at most
// maxText bytes in the line, whatever characters the caller chooses, and texts
// that need no escapes keep all of that.
func TestEscapesCountForTheBoundOfAText(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       int // bytes that are left
	}{
		{"letters", strings.Repeat("a", 4*maxText), maxText},
		{"HTML", strings.Repeat("<", 4*maxText), maxText},
		{"quotes", strings.Repeat(`"`, 4*maxText), maxText / 2},
		{"control characters", strings.Repeat("\x01", 4*maxText), maxText / 6},
		{"invalid text", strings.Repeat("\xff", 4*maxText), maxText / 6},
		{"line separators", strings.Repeat("\u2028", 4*maxText), maxText / 6 * 3},
		{"short", "/a<b>", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := Entry{Method: tt.text}
			e.cut()
			if len(e.Method) != tt.want {
				t.Errorf("%d bytes are left, want %d", len(e.Method), tt.want)
			}
			text, err := (&line{Entry: e}).render()
			if err != nil {
				t.Fatal(err)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal(text, &members); err != nil {
				t.Fatal(err)
			}
			if n := len(members["method"]) - len(`""`); n > maxText {
				t.Errorf("the text has %d bytes in the line, want at most %d", n, maxText)
			}
		})
	}
}
