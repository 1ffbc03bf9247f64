package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// TestPushFromARegistryEndsWithItsTimeout: --timeout bounds the download from a
// registry, too.
func TestPushFromARegistryEndsWithItsTimeout(t *testing.T) {
	asked, ended := make(chan struct{}, 1), make(chan struct{})
	stalled := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(stalled.Close)
	t.Cleanup(func() { close(ended) })
	node, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	t.Setenv("HOSTD_ADDR", node.Addr().String())
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	reference := "oci://" + strings.TrimPrefix(stalled.URL, "http://") + "/team/counter:1"
	got := hostd(t, "module", "push", reference, "--plain-http", "--timeout", "300ms")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "pull ") || !strings.Contains(got.err, "deadline") {
		t.Errorf("%+v", got)
	}
	select {
	case <-asked:
	default:
		t.Error("the registry was not asked")
	}
	for wrong, says := range map[string]string{"oci://Counter": "oci://Counter", "absent.wasm": "absent.wasm"} {
		if got := hostd(t, "module", "push", wrong); got.code != cli.ExitUsage || !strings.Contains(got.err, says) {
			t.Errorf("push %s: %+v", wrong, got)
		}
	}
}
