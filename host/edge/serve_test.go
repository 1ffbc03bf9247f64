package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/tests/support/rpctest"
)

const (
	entityPath  = "/hostd.entity.v1.EntityService/"
	modulePath  = "/hostd.module.v1.ModuleService/"
	clusterPath = "/hostd.cluster.v1.ClusterService/"
)

// site is a served world.
type site struct {
	world  *rpctest.World
	url    string
	h2     *http.Client
	server *services.Server
}

// serve serves a world on loopback until the test ends. The test fails if the
// server leaves goroutines behind.
func serve(t testing.TB, opts edge.Options) *site {
	t.Helper()
	return serveWith(t, opts, func(*services.Options) {})
}

// serveWith is serve with different dependencies.
func serveWith(t testing.TB, opts edge.Options, change func(*services.Options)) *site {
	t.Helper()
	before := runtime.NumGoroutine()
	w := rpctest.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if opts.NodeID == "" {
		opts.NodeID = "n1"
	}
	deps := w.Services()
	change(&deps)
	server := services.NewServer(deps, opts)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &site{world: w, url: "http://" + l.Addr().String(), server: server, h2: &http.Client{Transport: &http.Transport{Protocols: protocols}}}
	t.Cleanup(func() {
		s.h2.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		w.Close()
		eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return s
}

// entities returns a client over HTTP/2.
func (s *site) entities(opts ...connect.ClientOption) entityv1connect.EntityServiceClient {
	return entityv1connect.NewEntityServiceClient(s.h2, s.url, opts...)
}

// post sends JSON over HTTP/1.1, as curl does, and returns status and body.
func (s *site) post(t testing.TB, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return do(t, r)
}

func (s *site) get(t testing.TB, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, r)
}

func do(t testing.TB, r *http.Request) (int, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// wantJSON compares JSON texts by value.
func wantJSON(t testing.TB, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// wantCode checks the code of a Connect error in JSON.
func wantCode(t testing.TB, body string, want connect.Code) {
	t.Helper()
	var e struct{ Code, Message string }
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if e.Code != want.String() || e.Message == "" {
		t.Errorf("got %s, want code %s", body, want)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			var stacks bytes.Buffer
			buf := make([]byte, 1<<20)
			stacks.Write(buf[:runtime.Stack(buf, true)])
			t.Fatalf("waited too long for %s\n%s", what, stacks.String())
		}
	}
}
