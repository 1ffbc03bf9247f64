package authn

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/sharding/access"
)

// kept returns a token as stored in the metadata.
func kept(name, token string, expires time.Time) access.Token {
	t := access.Token{Name: name, Hash: access.HashToken(token)}
	if !expires.IsZero() {
		t.Expires = expires.Unix()
	}
	return t
}

func TestClusterTokenIsAccepted(t *testing.T) {
	w := newWorld(t, false)
	ann, short := NewToken(), NewToken()
	who := func(token string) string {
		status, p, _ := w.ask(somePath, stranger, "Bearer "+token)
		if status != 200 {
			return ""
		}
		return string(p.Kind) + ":" + p.Name
	}
	w.SetTokens(4, []access.Token{kept("ann", ann, time.Time{}), kept("short", short, w.clock.now().Add(time.Hour))})
	if a, b, c := who(ann), who(short), who(w.good); a != "token:ann" || b != "token:short" || c != "token:ci" {
		t.Errorf("they are %q, %q and, of the file, %q", a, b, c)
	}
	if !w.InFile("ci") || w.InFile("ann") {
		t.Error("what the cluster keeps is taken to be in the file, or the other way round")
	}
	w.clock.advance(time.Hour)
	if _, _, answer := w.ask(somePath, stranger, "Bearer "+short); !strings.Contains(answer.Body.String(), "expired") || who(ann) == "" {
		t.Errorf("at its end: %s", answer.Body)
	}
	w.SetTokens(3, []access.Token{kept("old", NewToken(), time.Time{})}) // an older revision
	if who(ann) != "token:ann" {
		t.Error("an older revision is gone by")
	}
	w.SetTokens(5, nil)
	if who(ann) != "" || who(w.good) != "token:ci" {
		t.Errorf("after its removal it is %q, the one of the file %q", who(ann), who(w.good))
	}
}

// TestUnknownTokenOnStaleNode: until the node has caught up with the
// metadata, an unknown token is not rejected as invalid, because the
// metadata may contain it.
func TestUnknownTokenOnStaleNode(t *testing.T) {
	w := newWorld(t, false)
	var caughtUp atomic.Bool
	w.opts.CaughtUp = &caughtUp
	ann := NewToken()
	w.SetTokens(1, []access.Token{kept("ann", ann, time.Time{})})
	for _, token := range []string{ann, w.good} {
		if status, _, answer := w.ask(somePath, neighbour, "Bearer "+token); status != 200 {
			t.Errorf("one that is known: %d %s", status, answer.Body)
		}
	}
	bo := NewToken()
	if status, _, answer := w.ask(somePath, stranger, "Bearer "+bo); status != 503 || !strings.Contains(answer.Body.String(), `"code":"unavailable"`) || answer.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("one that is not: %d %v %s", status, answer.Header(), answer.Body)
	}
	if status, _, _ := w.ask(somePath, stranger, "Bearer a.b.c"); status != 401 {
		t.Errorf("what is no token of a cluster: %d", status)
	}
	caughtUp.Store(true)
	if status, _, _ := w.ask(somePath, stranger, "Bearer "+bo); status != 401 {
		t.Errorf("one that is not, once the node has caught up: %d", status)
	}
}

func TestStreamEndsWithItsClusterToken(t *testing.T) {
	for name, known := range map[string]bool{"of a node that has caught up": true, "of one that has not": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, true)
			w.opts.CaughtUp = new(atomic.Bool)
			w.opts.CaughtUp.Store(known)
			ann, bo := NewToken(), NewToken()
			w.SetTokens(1, []access.Token{kept("ann", ann, time.Time{}), kept("bo", bo, time.Time{})})
			url := w.serve(t)
			hers, his := streams(t, url, ann), streams(t, url, bo)
			files := streams(t, url, w.good)
			w.SetTokens(2, []access.Token{kept("bo", bo, time.Time{})})
			for i, end := range hers {
				if err := end(); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "no longer valid") {
					t.Errorf("stream %d ended with %v", i, err)
				}
			}
			if n := len(w.streams.list()); n != len(his)+len(files) {
				t.Errorf("%d streams are left of %d", n, len(his)+len(files))
			}
			w.SetTokens(3, []access.Token{kept("other", bo, time.Time{})}) // now belongs to another name
			for i, end := range his {
				if err := end(); connect.CodeOf(err) != connect.CodeUnauthenticated {
					t.Errorf("stream %d of a token that was given to another ended with %v", i, err)
				}
			}
			write(t, w.file, "#")
			w.settle()
			for i, end := range files {
				if err := end(); connect.CodeOf(err) != connect.CodeUnauthenticated {
					t.Errorf("stream %d of a token of the file ended with %v", i, err)
				}
			}
		})
	}
}
