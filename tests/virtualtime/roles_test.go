package virtualtime

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/config"
)

// TestNodeWithoutCurrentRolesChangesNothing isolates a node from the metadata,
// while it still leads shards of which it has the only replica. It must execute
// no command of a caller whose roles may have been revoked in the meantime. It
// must still answer queries, and work as before once it reaches the other
// nodes.
func TestNodeWithoutCurrentRolesChangesNothing(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	const root = "hst_rootrootrootrootrootrootrootrootrootrootroot"
	if err := os.WriteFile(tokens, fmt.Appendf(nil, "root:%x\n", sha256.Sum256([]byte(root))), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := func(_ int, c *config.Config) {
		c.Replication, c.Auth, c.TokenFile = 1, config.AuthRequired, tokens
	}
	run(t, options{nodes: 2, shards: 4, config: alone}, func(t *testing.T, w *world) {
		w.token = root
		w.start(1, 2)
		w.settled()
		if _, err := w.beside(1).PutRoleBinding(t.Context(), "token:root", "admin"); err != nil {
			t.Fatal(err)
		}
		w.push()
		leader := w.leader(0, 1)
		other := w.others(leader)[0]
		w.until("the other node leads", func() bool { return w.leadsSome(other) })
		entity := w.heldBy(other)
		command := func() (reason string, err error) {
			_, err = w.attempt(other, add(entity, 1))
			return reasonOf(err), err
		}
		reads := func(when string) {
			t.Helper()
			if _, err := w.beside(other).Query(w.soon(), total(entity)); err != nil {
				t.Errorf("%s: a query: %v", when, err)
			}
			if w.overview(other) == nil {
				t.Errorf("%s: the node does not say what it knows of the cluster", when)
			}
		}
		time.Sleep(5 * time.Minute) // five minutes without any request
		if _, err := command(); err != nil {
			t.Fatalf("a cluster that was idle: %v", err)
		}
		w.net.Partition([]string{hostOf(leader)}, []string{hostOf(other), callersHost})
		time.Sleep(30 * time.Second)
		if _, err := command(); err != nil {
			t.Errorf("30 s after the cut: %v", err)
		}
		time.Sleep(35 * time.Second)
		if reason, err := command(); reason != "STALE_ROLES" || client.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("65 s after the cut: reason %q, %v", reason, err)
		}
		reads("65 s after the cut")
		w.net.HealAll()
		w.until("commands are carried out again", func() bool { _, err := command(); return err == nil })
		reads("healed")
	})
}

// TestLaggingNodeDecidesByCurrentRoles checks that a node whose view of the
// metadata lags decides a change of the metadata by the current roles, although
// its own view still permits the call when it arrives.
func TestLaggingNodeDecidesByCurrentRoles(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	const root, ann = "hst_rootrootrootrootrootrootrootrootrootrootroot", "hst_annannannannannannannannannannannannannanna"
	lines := fmt.Sprintf("root:%x\nann:%x\n", sha256.Sum256([]byte(root)), sha256.Sum256([]byte(ann)))
	if err := os.WriteFile(tokens, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := func(_ int, c *config.Config) {
		c.Replication, c.Auth, c.TokenFile, c.Admin = 1, config.AuthRequired, tokens, config.AdminFull
	}
	run(t, options{nodes: 2, shards: 4, config: alone}, func(t *testing.T, w *world) {
		w.token = root
		w.start(1, 2)
		w.settled()
		for _, b := range [][2]string{{"token:root", "admin"}, {"token:ann", "operator"}} {
			if _, err := w.beside(1).PutRoleBinding(t.Context(), b[0], b[1]); err != nil {
				t.Fatal(err)
			}
		}
		leader := w.leader(0, 1)
		other := w.others(leader)[0]
		w.token = ann
		anns := w.caller(hostOf(other), true, other)
		w.token = root
		put := func(value string) error {
			_, err := anns.PutSetting(t.Context(), "log.level", value)
			return err
		}
		w.until("ann may put settings", func() bool { return put("debug") == nil })
		w.net.Delay(hostOf(leader), hostOf(other), 400*time.Millisecond)
		if err := w.beside(leader).DeleteRoleBinding(t.Context(), "token:ann"); err != nil {
			t.Fatal(err)
		}
		if err := put("info"); client.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("by roles that were taken away before the call: %v", err)
		}
	})
}

// leadsSome reports whether a node considers itself the leader of a data shard.
func (w *world) leadsSome(i int) bool {
	for _, s := range w.shards(i) {
		if s.GetShardId() != 0 && w.place(s.GetLeader()) == i {
			return true
		}
	}
	return false
}

// reasonOf returns the machine-readable reason of an error.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Reason
	}
	return ""
}
