package authn

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// pipe creates a named pipe without a writer.
func pipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // unblocks readers that wait for a writer
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
}

// inTime fails the test if do does not return in time.
func inTime(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: it waits", what)
	}
}

// TestPipeAsTokenFileIsRejected: a file that is not regular is rejected
// without reading it, because a read could block.
func TestPipeAsTokenFileIsRejected(t *testing.T) {
	dir := t.TempDir()
	fifo, link, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "socket")
	pipe(t, fifo)
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, path := range []string{fifo, link, socket, dir, "/dev/null"} {
		for what, o := range map[string]Options{
			"token-file":    {TokenFile: path},
			"jwt-keys-file": {JWT: &JWTOptions{Issuer: "https://a.example", Audience: "a", KeysFile: path}},
		} {
			inTime(t, what+" "+path, func() {
				if _, err := New(o); err == nil || !strings.Contains(err.Error(), what+": "+path+" is a ") || !strings.Contains(err.Error(), "regular file") {
					t.Errorf("%s %s: %v", what, path, err)
				}
			})
		}
	}
}

// TestTokenFileReplacedByPipeIsIgnored: the previous contents stay in use, and nothing
// blocks on the pipe.
func TestTokenFileReplacedByPipeIsIgnored(t *testing.T) {
	w := newWorld(t, false)
	in := func(token string) bool {
		_, fail := w.verify(t.Context(), token, false)
		return fail == nil
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	pipe(t, w.file)
	inTime(t, "a look at a pipe", w.settle)
	if n := testutil.ToFloat64(w.metrics.reloads.WithLabelValues("token-file")); !in(w.good) || n != 1 || strings.Count(w.log.String(), "regular file") != 1 {
		t.Errorf("with a pipe: %v, counted %v, %s", in(w.good), n, w.log.String())
	}
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	next := NewToken()
	write(t, w.file, line(t, "next", next, time.Time{}))
	w.settle()
	if in(w.good) || !in(next) {
		t.Errorf("with a file again: %v %v", in(w.good), in(next))
	}
	keys := filepath.Join(t.TempDir(), "keys")
	key := newSigner(t, "k", jose.EdDSA)
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.key.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, keys, string(text))
	k := newIssuerWorld(t, keys)
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	pipe(t, keys)
	inTime(t, "a look at a pipe of keys", k.settle)
	k.demand("with a pipe", k.token(key, nil), nil)
}
