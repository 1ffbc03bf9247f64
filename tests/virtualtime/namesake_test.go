package virtualtime

import (
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/config"
)

// TestReplacedNodeEnds freezes a node while another process starts with its ID.
// When the node continues, nothing that it sends is accepted, and it ends.
func TestReplacedNodeEnds(t *testing.T) {
	name := func(i int, c *config.Config) {
		if i == 5 {
			c.NodeID = id(4)
		}
	}
	run(t, options{nodes: 3, shards: 3, config: name}, func(t *testing.T, w *world) {
		w.found()
		w.start(4)
		w.settled()
		old := w.nodes[4]
		w.net.Host(hostOf(4)).Freeze()
		time.Sleep(5 * time.Second)
		w.start(5)
		w.until("the later start is ready", w.nodes[5].Ready)
		w.net.Host(hostOf(4)).Thaw()
		var reason error
		w.until("the replaced process ends", func() bool {
			select {
			case reason = <-old.Failure():
				return true
			default:
				return false
			}
		})
		if !strings.Contains(reason.Error(), "a different process with a later start runs as node n4") || !strings.Contains(reason.Error(), address(5)) {
			t.Errorf("it ends with %q", reason)
		}
		w.stop(4)
		time.Sleep(10 * time.Second)
		w.settled()
		select {
		case err := <-w.nodes[5].Failure():
			t.Errorf("the later start ends too: %v", err)
		default:
		}
	})
}
