package host_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/telemetry"
)

// profile fetches a profile of a node from another node, and returns it as
// pprof shows it.
func profile(ctx context.Context, at *host.Node, r *clusterv1.ProfileNodeRequest) (text, node string, err error) {
	in, err := clusterv1connect.NewClusterServiceClient(http.DefaultClient, "http://"+at.Addr()).ProfileNode(ctx, connect.NewRequest(r))
	if err != nil {
		return "", "", err
	}
	defer in.Close()
	var zipped bytes.Buffer
	for in.Receive() {
		node = in.Msg().GetNodeId()
		zipped.Write(in.Msg().GetPart())
	}
	if in.Err() != nil {
		return "", "", in.Err()
	}
	z, err := gzip.NewReader(&zipped)
	if err != nil {
		return "", "", err
	}
	all, err := io.ReadAll(z)
	return string(all), node, err
}

// TestProfilesOfNodes: profiles of each kind contain what pprof looks for, both
// for the node that receives the call and for another node. An unknown or
// failed node is named in the error.
func TestProfilesOfNodes(t *testing.T) {
	nodes := startCluster(t, 2, 4)
	for kind, holds := range map[clusterv1.ProfileNodeRequest_Kind][]string{
		clusterv1.ProfileNodeRequest_KIND_CPU: {"cpu", "nanoseconds"}, clusterv1.ProfileNodeRequest_KIND_BLOCK: {"contentions", "delay"},
		clusterv1.ProfileNodeRequest_KIND_HEAP: {"inuse_space"}, clusterv1.ProfileNodeRequest_KIND_GOROUTINE: {"goroutine", "github.com/hostd/hostd/host"},
	} {
		for of, n := range map[string]*host.Node{"": nodes[0], string(nodes[1].ID()): nodes[1]} {
			text, node, err := profile(t.Context(), nodes[0], &clusterv1.ProfileNodeRequest{NodeId: of, Kind: kind, Duration: durationpb.New(time.Second)})
			if err != nil || node != string(n.ID()) {
				t.Errorf("%s of %q: from %q: %v", kind, of, node, err)
				continue
			}
			for _, want := range holds {
				if !strings.Contains(text, want) {
					t.Errorf("%s of %q has no %q", kind, of, want)
				}
			}
		}
	}
	for code, r := range map[connect.Code]*clusterv1.ProfileNodeRequest{
		connect.CodeNotFound:        {NodeId: "nobody", Kind: clusterv1.ProfileNodeRequest_KIND_HEAP},
		connect.CodeInvalidArgument: {Kind: clusterv1.ProfileNodeRequest_KIND_UNSPECIFIED},
	} {
		if _, _, err := profile(t.Context(), nodes[0], r); connect.CodeOf(err) != code {
			t.Errorf("%v: %v, want %s", r, err, code)
		}
	}
}

// TestOneProfileAtATime: a request for a profile while another profile runs is
// rejected with that reason. When the running profile is canceled, the next
// request is accepted.
func TestOneProfileAtATime(t *testing.T) {
	n, _ := start(t, t.TempDir())
	defer stop(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for {
			_, _, err := profile(ctx, n, &clusterv1.ProfileNodeRequest{Kind: clusterv1.ProfileNodeRequest_KIND_CPU, Duration: durationpb.New(5 * time.Minute)})
			if connect.CodeOf(err) != connect.CodeResourceExhausted { // another request came first
				ended <- err
				return
			}
		}
	}()
	heap := &clusterv1.ProfileNodeRequest{Kind: clusterv1.ProfileNodeRequest_KIND_HEAP}
	until := func(done func(error) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, _, err := profile(t.Context(), n, heap)
			if done(err) {
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("the profile ended: %v", err)
			default:
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	until(func(err error) bool { return connect.CodeOf(err) == connect.CodeResourceExhausted })
	cancel()
	if err := <-ended; connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("the profile that was given up ended with %v", err)
	}
	until(func(err error) bool { return err == nil })
}

// TestDebugServesProfiles: profiles are served over HTTP if debug is set.
func TestDebugServesProfiles(t *testing.T) {
	for _, debug := range []bool{false, true} {
		n, _ := startWith(t, t.TempDir(), func(c *config.Config) { c.Debug = debug })
		for path, holds := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
			res, err := http.Get("http://" + n.Addr() + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if served := res.StatusCode == http.StatusOK && strings.Contains(string(body), holds); err != nil || served != debug {
				t.Errorf("debug %v: %s answers %s: %v", debug, path, res.Status, err)
			}
		}
		stop(t, n)
	}
}

// TestLogLevelsFollowSettings: a node applies the log level settings meant for it,
// and returns to its configuration when they are deleted.
func TestLogLevelsFollowSettings(t *testing.T) {
	log := telemetry.NewLogger(io.Discard, slog.LevelWarn, config.LogText)
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.Shards, cfg.Admin, cfg.NodeID = t.TempDir(), "127.0.0.1:0", 1, config.AdminFull, "n7"
	n, err := host.Start(t.Context(), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	for !n.Ready() {
		time.Sleep(5 * time.Millisecond)
	}
	c := dialNode(t, n)
	for _, s := range []struct {
		key, value string
		least      slog.Level
	}{
		{"log.level", "debug", slog.LevelDebug}, {"log.level.n7", "error,host/nothing=info", slog.LevelInfo}, {"log.level.n8", "debug", slog.LevelInfo},
		{"log.level.n7", "error", slog.LevelError}, {"log.level.n7", "", slog.LevelDebug}, {"log.level", "", slog.LevelWarn},
	} {
		if _, err := c.PutSetting(t.Context(), s.key, s.value); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); !log.Enabled(t.Context(), s.least) || log.Enabled(t.Context(), s.least-1); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after %s = %q: not from %s on", s.key, s.value, s.least)
			}
		}
	}
	if _, err := c.PutSetting(t.Context(), "log.level", "loud"); err == nil || !strings.Contains(err.Error(), "loud") {
		t.Errorf("a level that is none: %v", err)
	}
}
