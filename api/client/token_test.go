package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
)

// TestTokensRequireTLS checks that without TLS a token is sent only to this
// machine, unless the option allows it.
func TestTokensRequireTLS(t *testing.T) {
	token := client.Options{Token: "hst_x"}
	source := client.Options{TokenSource: func(context.Context) (string, error) { return "hst_x", nil }}
	insecure := client.Options{Token: "hst_x", InsecureToken: true}
	for _, tt := range []struct {
		addrs   string
		opts    client.Options
		refused string
	}{
		{"n1.invalid:7070", token, "n1.invalid:7070"},
		{"n1.invalid:7070", source, "n1.invalid:7070"},
		{"http://n1.invalid:7070/", token, "http://n1.invalid:7070/"},
		{"HTTP://192.0.2.1:7070", token, "HTTP://192.0.2.1:7070"},
		{"127.0.0.1:1,0.0.0.0:1", token, "0.0.0.0:1"},
		{"localhost.invalid:1", token, "localhost.invalid:1"},
		{"http://127.0.0.1@n1.invalid:1", token, "http://127.0.0.1@n1.invalid:1"},
		{"127.0.0.1:1,127.9.9.9:1,[::1]:1,localhost:1,[::ffff:127.0.0.1]:1", source, ""},
		{"https://n1.invalid:7070,127.0.0.1:1", token, ""},
		{"n1.invalid:7070", insecure, ""},
		{"n1.invalid:7070", client.Options{}, ""},
	} {
		c, err := client.New(strings.Split(tt.addrs, ","), tt.opts)
		var told *client.InsecureTokenError
		if errors.As(err, &told); tt.refused == "" && err != nil || tt.refused != "" && (told == nil || told.Address != tt.refused || strings.Contains(err.Error(), "hst_")) {
			t.Errorf("%s: %v", tt.addrs, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// detour is a transport that replaces one address by another, and records the
// hosts and paths of requests.
type detour struct {
	*http.Transport
	mu   sync.Mutex
	seen []string
}

func newDetour(t *testing.T, from, to string) *detour {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	r := &detour{Transport: &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == from {
			addr = to
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}}
	t.Cleanup(r.CloseIdleConnections)
	return r
}

func (r *detour) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen = append(r.seen, q.URL.Host+q.URL.Path)
	r.mu.Unlock()
	return r.Transport.RoundTrip(q)
}

// has reports whether there was a request whose URL starts with the prefix.
func (r *detour) has(prefix string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.seen, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

// TestTokensAreNotSentToLearnedAddresses: a node without TLS reports nodes on
// other machines. The client does not call them, even if a user of HTTPClient
// names such an address.
func TestTokensAreNotSentToLearnedAddresses(t *testing.T) {
	f := fleet(t, 2)
	f.Forwards = true
	spread(f, 2)
	const away = "192.0.2.2:7070"
	first, second := f.Node(1).Addr, f.Node(2).Addr
	f.Node(2).Addr = away // as the node reports it
	for _, insecure := range []bool{true, false} {
		r := newDetour(t, away, second)
		c, err := client.New([]string{first}, client.Options{Token: "hst_x", InsecureToken: insecure, Timeout: time.Minute, HTTPClient: &http.Client{Transport: r}})
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		send := func() bool {
			sent++
			if _, err := c.Send(t.Context(), add(fmt.Sprint(insecure, sent), 1)); err != nil {
				t.Fatal(err)
			}
			return r.has(first+clusterv1connect.ClusterServiceListShardsProcedure) && (!insecure || r.has(away))
		}
		eventually(t, "the nodes to be known", send)
		for range 20 {
			send()
		}
		if !insecure && r.has(away) {
			t.Error("a token went to another machine, without TLS")
		}
		stranger := clusterv1connect.NewClusterServiceClient(c.HTTPClient(), "http://"+away)
		_, err = stranger.GetCluster(t.Context(), connect.NewRequest(&clusterv1.GetClusterRequest{}))
		if told := (*client.InsecureTokenError)(nil); errors.As(err, &told) == insecure || !insecure && r.has(away) {
			t.Errorf("insecure %v: %v", insecure, err)
		}
		c.Close()
	}
}
