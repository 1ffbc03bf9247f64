package entities

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
)

// TestPanicTextIsReported checks that the text of a guest's panic is in the entity's
// last error and in the log, and is returned to callers only if the node is
// configured to expose it.
func TestPanicTextIsReported(t *testing.T) {
	for _, tell := range []bool{false, true} {
		n := &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest", tell: tell, log: &lines{}}
		n.open()
		_, err := n.c.Send(t.Context(), client.Command{EntityType: "alarm", EntityID: "a", Name: "break", Data: []byte(`{"name":"bones"}`)})
		const panicked = "the cupboard is bare of bones"
		if client.CodeOf(err) != connect.CodeInternal || strings.Contains(fmt.Sprint(err), panicked) != tell {
			t.Errorf("callers are told: %v; they are answered: %v", tell, err)
		}
		e, err := n.c.Entity(t.Context(), "alarm", "a")
		if err != nil || strings.Count(e.GetLastError(), panicked) != 1 {
			t.Errorf("the last error: %q, %v", e.GetLastError(), err)
		}
		for _, line := range n.log.of("guest fault") {
			if strings.Count(line, panicked) != 1 {
				t.Errorf("the log: %s", line)
			}
		}
		if len(n.log.of("guest fault")) == 0 {
			t.Error("the log says nothing")
		}
		n.stop()
	}
}
