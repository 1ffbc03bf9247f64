package authn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hostd/hostd/sharding/access"
)

// clock is a clock that the test sets.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2029, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// write writes text to a file.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// world is an authenticator with a token file.
type world struct {
	*Authenticator
	clock          *clock
	file           string
	good, expiring string // tokens; the second expires in an hour
	log            bytes.Buffer
}

func newWorld(t testing.TB, anonymous bool) *world {
	t.Helper()
	w := &world{clock: newClock(), file: filepath.Join(t.TempDir(), "tokens"), good: NewToken(), expiring: NewToken()}
	write(t, w.file, line(t, "ci", w.good, time.Time{})+"\n"+line(t, "guest", w.expiring, w.clock.now().Add(time.Hour))+"\n")
	var err error
	if w.Authenticator, err = New(Options{Anonymous: anonymous, TokenFile: w.file, Now: w.clock.now, Logger: slog.New(slog.NewTextHandler(&w.log, nil))}); err != nil {
		t.Fatal(err)
	}
	return w
}

// settle looks twice, as a file change needs to take effect.
func (w *world) settle() {
	w.look(context.Background(), false)
	w.look(context.Background(), false)
}

// ask sends a request through the middleware. It returns the response, and the
// caller that the handler saw.
func (w *world) ask(path, remote string, header ...string) (status int, who *Principal, answer *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	r.RemoteAddr = remote
	answer = httptest.NewRecorder()
	w.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = Of(r.Context()) }), func(remote string) string { return remote }).ServeHTTP(answer, r)
	return answer.Code, who, answer
}

const (
	somePath  = "/hostd.entity.v1.EntityService/SendCommand"
	stranger  = "192.0.2.7:1000"
	neighbour = "127.0.0.1:1000"
)

func TestMiddlewareAuthenticatesCallers(t *testing.T) {
	for _, anonymous := range []bool{false, true} {
		w := newWorld(t, anonymous)
		for i, c := range []struct {
			header []string
			status int
			name   string
			reason string
		}{
			{[]string{"Bearer " + w.good}, 200, "ci", ""},
			{[]string{"bearer " + w.good}, 200, "ci", ""},
			{[]string{"Bearer " + w.expiring}, 200, "guest", ""},
			{[]string{"Bearer " + NewToken()}, 401, "", "unknown"},
			{[]string{"Bearer "}, 401, "", "malformed"},
			{[]string{"Bearer"}, 401, "", "malformed"},
			{[]string{""}, 401, "", "malformed"},
			{[]string{"Basic " + w.good}, 401, "", "malformed"},
			{[]string{w.good}, 401, "", "malformed"},
			{[]string{"Bearer " + w.good, "Bearer " + w.good}, 401, "", "malformed"},
			{[]string{"Bearer a.b.c"}, 401, "", "unknown"},
			{[]string{"Bearer  " + w.good}, 401, "", "unknown"},
		} {
			status, who, answer := w.ask(somePath, fmt.Sprint("192.0.2.7:", i), c.header...)
			if status != c.status {
				t.Errorf("%q: %d, want %d", c.header, status, c.status)
			}
			if c.status == 200 && (who == nil || who.Name != c.name || who.Kind != KindToken) {
				t.Errorf("%q is of %+v", c.header, who)
			}
			if c.status != 200 && (who != nil || answer.Header().Get("WWW-Authenticate") != "Bearer" || !strings.Contains(answer.Body.String(), `"code":"unauthenticated"`)) {
				t.Errorf("%q was let in as %+v, or told %v %s", c.header, who, answer.Header(), answer.Body)
			}
		}
		status, who, _ := w.ask(somePath, stranger)
		if anonymous && (status != 200 || who.Kind != KindAnonymous || who.Name != "") || !anonymous && (status != 401 || who != nil) {
			t.Errorf("anonymous callers let in is %v: %d as %+v", anonymous, status, who)
		}
	}
}

func TestTokensExpire(t *testing.T) {
	w := newWorld(t, true)
	w.clock.advance(time.Hour - time.Nanosecond)
	if status, _, _ := w.ask(somePath, stranger, "Bearer "+w.expiring); status != 200 {
		t.Errorf("just before its end: %d", status)
	}
	w.clock.advance(time.Nanosecond)
	if status, who, answer := w.ask(somePath, stranger, "Bearer "+w.expiring); status != 401 || !strings.Contains(answer.Body.String(), "expired") {
		t.Errorf("at its end: %d, %+v, %s", status, who, answer.Body)
	}
	if status, _, _ := w.ask(somePath, stranger, "Bearer "+w.good); status != 200 {
		t.Errorf("a token without an end: %d", status)
	}
}

func TestProceduresWithoutAuthentication(t *testing.T) {
	w := newWorld(t, false)
	for i, c := range []struct {
		path, remote string
		open         bool
	}{
		{"/livez", stranger, true},
		{"/readyz", stranger, true},
		{"/grpc.health.v1.Health/Check", stranger, true},
		{"/metrics", neighbour, true},
		{"/metrics", "[::1]:9", true},
		{"/metrics", "[::ffff:127.0.0.1]:9", true},
		{"/metrics", stranger, false},
		{"/metrics", "", false},
		{"/livez/", neighbour, false},
		{"/livez/../hostd.entity.v1.EntityService/SendCommand", neighbour, false},
		{"//livez", neighbour, false},
		{"/grpc.health.v1.HealthX/Check", neighbour, false},
		{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", neighbour, false},
		{"/", neighbour, false},
		{somePath, neighbour, false},
	} {
		status, who, _ := w.ask(c.path, c.remote)
		if (status == 200) != c.open || (who != nil) != c.open {
			t.Errorf("%d: %s of %s: %d", i, c.path, c.remote, status)
		}
	}
}

// TestProxiedRequestIsNotLocal: a request that a proxy on this machine
// forwards does not count as local, because it comes from elsewhere.
func TestProxiedRequestIsNotLocal(t *testing.T) {
	for header, local := range map[string]bool{"": true, "User-Agent": true, "X-Forwarded-For": false, "x-real-ip": false, "Via": false, "Forwarded": false, "X-Forwarded-Host": false} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.RemoteAddr = neighbour
		if header != "" {
			r.Header.Set(header, "192.0.2.1")
		}
		if got := FromThisMachine(r); got != local {
			t.Errorf("with %q: %v", header, got)
		}
		if r.RemoteAddr = stranger; FromThisMachine(r) {
			t.Errorf("a stranger with %q passes for this machine", header)
		}
	}
}

// TestFailedAuthenticationsAreRateLimited: a caller with many rejected requests has to wait.
// Each address has its own limit, and a valid credential is always accepted.
func TestFailedAuthenticationsAreRateLimited(t *testing.T) {
	w := newWorld(t, false)
	for i := range maxFailures {
		if status, _, _ := w.ask(somePath, stranger); status != 401 {
			t.Fatalf("failure %d: %d", i+1, status)
		}
	}
	status, _, answer := w.ask(somePath, stranger)
	if status != 429 || answer.Header().Get("Retry-After") == "" || !strings.Contains(answer.Body.String(), `"code":"resource_exhausted"`) || !strings.Contains(answer.Body.String(), "RetryInfo") {
		t.Fatalf("one too many: %d %s", status, answer.Body)
	}
	if status, _, _ := w.ask(somePath, stranger, "Bearer "+w.good); status != 200 {
		t.Errorf("a good token of that address: %d", status)
	}
	if status, _, _ := w.ask(somePath, "192.0.2.8:1"); status != 401 {
		t.Errorf("another address: %d", status)
	}
	w.clock.advance(time.Second)
	if status, _, _ := w.ask(somePath, stranger); status != 401 {
		t.Errorf("a second later: %d", status)
	}
}

func TestRecordedFailuresAreBounded(t *testing.T) {
	var f failures
	now := time.Unix(1, 0)
	for i := range 3 * maxAddresses {
		f.tooMany(fmt.Sprint(i), now)
	}
	if len(f.by) != maxAddresses {
		t.Errorf("%d addresses are known", len(f.by))
	}
	if !f.tooMany("another", now) {
		t.Error("addresses beyond the table have no bound")
	}
	if f.tooMany("0", now) {
		t.Error("an address of the table has lost its count")
	}
	if f.tooMany("another", now.Add(time.Second)); len(f.by) != 1 {
		t.Errorf("%d addresses a second later", len(f.by))
	}
}

// TestInvalidTokenFileChangesNothing: an invalid or missing token file changes nothing
// and is counted.
func TestInvalidTokenFileChangesNothing(t *testing.T) {
	w := newWorld(t, false)
	in := func(token string) bool {
		status, _, _ := w.ask(somePath, stranger, "Bearer "+token)
		w.clock.advance(time.Second) // resets the limit of failures
		return status == 200
	}
	count := func() float64 { return testutil.ToFloat64(w.metrics.reloads.WithLabelValues("token-file")) }
	write(t, w.file, "nonsense")
	w.settle()
	if !in(w.good) || count() != 1 {
		t.Errorf("after a bad file: %v, counted %v", in(w.good), count())
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if !in(w.good) || count() != 2 {
		t.Errorf("without a file: %v, counted %v", in(w.good), count())
	}
	next := NewToken()
	write(t, w.file, line(t, "next", next, time.Time{}))
	w.settle()
	if in(w.good) || !in(next) || count() != 2 {
		t.Errorf("after a good file: %v %v, counted %v", in(w.good), in(next), count())
	}
	if _, err := New(Options{TokenFile: w.file + "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a node starts without its file: %v", err)
	}
	write(t, w.file, "nonsense")
	if _, err := New(Options{TokenFile: w.file}); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a node starts with a bad file: %v", err)
	}
}

// TestHalfWrittenTokenFileIsReadAgain: a file takes effect when two looks have seen the same
// contents, because it may be written while it is read.
func TestHalfWrittenTokenFileIsReadAgain(t *testing.T) {
	w := newWorld(t, false)
	in := func(token string) bool { return w.tokens.Load().find(access.HashToken(token)) != nil }
	whole, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(whole), "\n")
	for _, all := range []bool{false, true} {
		write(t, w.file, first+"\n")
		w.look(context.Background(), all)
		if !in(w.expiring) {
			t.Errorf("all is %v: the first look at half a file takes it", all)
		}
		write(t, w.file, "# next\n"+first+"\n")
		w.look(context.Background(), all)
		if !in(w.expiring) {
			t.Errorf("all is %v: a look at more of it takes it", all)
		}
		write(t, w.file, string(whole))
		w.look(context.Background(), all)
		w.look(context.Background(), all)
		if !in(w.good) || !in(w.expiring) || w.log.Len() != 0 {
			t.Errorf("all is %v: the file as it was is told of: %s", all, w.log.String())
		}
	}
	for _, empty := range []string{"", "\n \n"} {
		write(t, w.file, empty)
		w.settle()
		if !in(w.good) {
			t.Errorf("%q takes all tokens away", empty)
		}
	}
	write(t, w.file, "# none")
	w.settle()
	if in(w.good) || in(w.expiring) {
		t.Error("a file that says that there are no tokens leaves some")
	}
}

// TestInvalidTokenFileIsLoggedOnce: a file that stays invalid is logged only once.
func TestInvalidTokenFileIsLoggedOnce(t *testing.T) {
	w := newWorld(t, false)
	told := func(what string, want int) {
		t.Helper()
		for i := range 5 {
			w.look(context.Background(), i == 4)
		}
		if n := strings.Count(w.log.String(), "cannot reload a credential file"); n != want {
			t.Errorf("%s: told %d times, want %d:\n%s", what, n, want, w.log.String())
		}
		w.log.Reset()
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	told("a file that is gone", 1)
	l, err := net.Listen("unix", w.file) // has a size and a time, but cannot be opened
	if err != nil {
		t.Fatal(err)
	}
	told("a file that cannot be opened", 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, w.file, "nonsense")
	told("a bad file", 1)
	write(t, w.file, "more nonsense")
	told("another bad file", 1)
	write(t, w.file, line(t, "ci", w.good, time.Time{}))
	told("a good file", 0)
	write(t, w.file, "nonsense")
	told("a bad file again", 1)
}

// serve runs a service with one stream of each kind behind the authenticator.
func (w *world) serve(t *testing.T) (url string) {
	mux := http.NewServeMux()
	with := connect.WithInterceptors(w.Streams())
	mux.Handle("/s.S/Server", connect.NewServerStreamHandler("/s.S/Server", func(ctx context.Context, _ *connect.Request[emptypb.Empty], out *connect.ServerStream[emptypb.Empty]) error {
		if err := out.Send(&emptypb.Empty{}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}, with))
	mux.Handle("/s.S/Bidi", connect.NewBidiStreamHandler("/s.S/Bidi", func(_ context.Context, conn *connect.BidiStream[emptypb.Empty, emptypb.Empty]) error {
		for {
			if _, err := conn.Receive(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := conn.Send(&emptypb.Empty{}); err != nil {
				return err
			}
		}
	}, with))
	s := httptest.NewUnstartedServer(w.Wrap(mux, func(r string) string { return r }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func httpClient() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

// streams opens one stream of each kind with a token. Each returned function
// reads until the stream ends and returns its error.
func streams(t *testing.T, url, token string) (ends []func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	req := connect.NewRequest(&emptypb.Empty{})
	req.Header().Set("Authorization", "Bearer "+token)
	server, err := connect.NewClient[emptypb.Empty, emptypb.Empty](httpClient(), url+"/s.S/Server").CallServerStream(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if !server.Receive() {
		t.Fatal(server.Err())
	}
	bidi := connect.NewClient[emptypb.Empty, emptypb.Empty](httpClient(), url+"/s.S/Bidi").CallBidiStream(ctx)
	bidi.RequestHeader().Set("Authorization", "Bearer "+token)
	if err := bidi.Send(&emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bidi.Receive(); err != nil {
		t.Fatal(err)
	}
	return []func() error{
		func() error { server.Receive(); return server.Err() },
		func() error { _, err := bidi.Receive(); return err },
	}
}

func TestStreamEndsWithItsCredential(t *testing.T) {
	for _, c := range []struct {
		name  string
		token func(*world) string
		end   func(t *testing.T, w *world)
		says  string
	}{
		{"expired", func(w *world) string { return w.expiring }, func(_ *testing.T, w *world) { w.clock.advance(time.Hour) }, "expired"},
		{"removed from the file", func(w *world) string { return w.good }, func(t *testing.T, w *world) { write(t, w.file, "#") }, "no longer valid"},
		{"given to another", func(w *world) string { return w.good }, func(t *testing.T, w *world) { write(t, w.file, line(t, "other", w.good, time.Time{})) }, "no longer valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, true)
			url := w.serve(t)
			ends := streams(t, url, c.token(w))
			w.look(context.Background(), true)
			if n := len(w.streams.list()); n != 2 || testutil.ToFloat64(w.metrics.streams) != 0 {
				t.Fatalf("%d streams are open, %v ended", n, testutil.ToFloat64(w.metrics.streams))
			}
			c.end(t, w)
			w.settle()
			for i, end := range ends {
				if err := end(); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), c.says) {
					t.Errorf("stream %d ended with %v", i, err)
				}
			}
			if n := testutil.ToFloat64(w.metrics.streams); n != 2 {
				t.Errorf("%v streams are counted", n)
			}
		})
	}
}

// TestRunReloadsPeriodically: Run reads the files periodically and on Reload.
func TestRunReloadsPeriodically(t *testing.T) {
	w := newWorld(t, false)
	ends := streams(t, w.serve(t), w.good)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	write(t, w.file, "#")
	w.Reload()
	for i, end := range ends {
		if err := end(); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("stream %d ended with %v", i, err)
		}
	}
	cancel()
	<-ended
}

func BenchmarkMiddleware(b *testing.B) {
	for _, tokens := range []int{1, 100, maxTokens} {
		for _, mode := range []string{"off", "token", "anonymous"} {
			b.Run(fmt.Sprintf("%s/tokens=%d", mode, tokens), func(b *testing.B) {
				file := filepath.Join(b.TempDir(), "tokens")
				var text strings.Builder
				var token string
				for i := range tokens {
					token = NewToken()
					text.WriteString(line(b, fmt.Sprint("n", i), token, time.Time{}) + "\n")
				}
				write(b, file, text.String())
				a, err := New(Options{Anonymous: true, TokenFile: file, Registerer: prometheus.NewRegistry()})
				if err != nil {
					b.Fatal(err)
				}
				var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				r := httptest.NewRequest(http.MethodPost, somePath, nil)
				if mode != "off" {
					h = a.Wrap(h, func(r string) string { return r })
				}
				if mode == "token" {
					r.Header.Set("Authorization", "Bearer "+token)
				}
				answer := httptest.NewRecorder()
				b.ReportAllocs()
				for b.Loop() {
					h.ServeHTTP(answer, r)
				}
				if answer.Code != 200 {
					b.Fatal(answer.Code)
				}
			})
		}
	}
}
