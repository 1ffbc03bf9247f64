package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestCompletionAsksTheCluster checks that arguments are completed with values
// from the nodes, and that nothing is offered, without a failure, if no node
// answers.
func TestCompletionAsksTheCluster(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	node.Push("counter")
	for _, id := range []string{"visits", "views", "other"} {
		if got := hostd(t, "entity", "send", "counter", id, "add", `{"amount":1}`, "--addr", node.API()); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	offered := func(addr string, args ...string) []string {
		t.Helper()
		got := hostd(t, append([]string{"__complete"}, append(args[:len(args)-1:len(args)-1], "--addr", addr, args[len(args)-1])...)...)
		if got.code != 0 {
			t.Fatalf("%q: %+v", args, got)
		}
		lines := strings.Fields(got.out)
		return lines[:len(lines)-1] // the last line is a directive for the shell
	}
	for _, tt := range []struct{ args, want string }{
		{"entity get ", "counter"},
		{"entity get counter vi", "views visits"},
		{"entity send counter visits ad", "add"},
		{"entity query counter visits tot", "total"},
		{"entity get none ", ""},
		{"node drain ", node.ID()},
	} {
		if got := offered(node.API(), strings.Split(tt.args, " ")...); !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%q is completed by %q, want %q", tt.args, got, tt.want)
		}
	}
	if got := offered("127.0.0.1:1", "entity", "get", ""); len(got) != 0 {
		t.Errorf("no node answers, and %q is offered", got)
	}
}
