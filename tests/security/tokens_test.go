package security

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestClusterTokensApplyOnEveryNode checks that all nodes accept a token that
// was created through one node, including a node that starts later. When it is
// removed through one node, its streams end on all nodes.
func TestClusterTokensApplyOnEveryNode(t *testing.T) {
	token, file := tokens(t, "root")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	c.Start()
	c.Push("counter")
	root := c.Node(0).Client(client.Options{Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	for _, who := range []string{"ann", "bo"} {
		token[who] = authn.NewToken()
		if _, err := client.TokensOf(root).Create(ctx, who, sha256.Sum256([]byte(token[who])), time.Time{}, "viewer", "invoker"); err != nil {
			t.Fatal(err)
		}
	}
	add := func(node *testkit.Node, who, id string) error {
		_, err := node.Client(client.Options{Token: token[who], Timeout: testkit.Patience}).Send(ctx, client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)})
		return err
	}
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport}
	var hers []opened
	for _, node := range c.Nodes() {
		for _, who := range []string{"ann", "bo"} {
			node.Until(who+" is known", func() error { return add(node, who, node.ID()) })
		}
		hers = append(hers, open(t, ctx, calls, node, token["ann"], "ann-"+node.ID()))
	}
	c.Restart(2)
	c.Node(2).Until("bo is known after a start", func() error { return add(c.Node(2), "bo", "a") })
	began := time.Now()
	if err := client.TokensOf(root).Remove(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for i, o := range hers[:2] { // the third node was restarted
		waiting.Go(func() {
			at, commands, events := o.ended()
			for what, err := range map[string]error{"stream of commands": commands, "subscription": events} {
				if connect.CodeOf(err) != connect.CodeUnauthenticated {
					t.Errorf("%s: the %s of a token that was removed ended with %v", c.Node(i).ID(), what, err)
				}
			}
			t.Logf("%s: both streams had ended %s after the call to %s began", c.Node(i).ID(), at.Sub(began), c.Node(0).ID())
		})
	}
	waiting.Wait()
	for _, node := range c.Nodes() {
		node.Until("ann is nobody", func() error {
			if err := add(node, "ann", "a"); client.CodeOf(err) != connect.CodeUnauthenticated {
				return &still{err}
			}
			return nil
		})
		if err := add(node, "bo", "a"); err != nil {
			t.Errorf("%s: another token: %v", node.ID(), err)
		}
	}
}

// still is the error for a token that should be rejected. err is the result of
// a call with the token, or nil if the token is still accepted.
type still struct{ err error }

func (s *still) Error() string {
	if s.err == nil {
		return "it is let in"
	}
	return s.err.Error()
}
