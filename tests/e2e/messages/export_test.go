package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// archived is the summary that the command line prints about an export file.
type archived struct {
	Entities, Sends, Timers, DeadLetters uint64
	Digest                               string
}

// journal is a running hostd journal command that may be killed.
type journal struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	ended       chan struct{}
}

func (b *bed) journal(args ...string) *journal {
	b.t.Helper()
	j := &journal{cmd: exec.Command(testkit.Program(b.t), append([]string{"journal"}, args...)...), ended: make(chan struct{})}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.errOut
	if err := j.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(j.ended)
		_ = j.cmd.Wait() // the outcome is read from ProcessState
	}()
	b.t.Cleanup(func() { j.kill(); <-j.ended })
	return j
}

func (j *journal) kill() { _ = j.cmd.Process.Kill() } // the process may have ended

// archived waits for the end of the command and returns its summary. ok is
// false if the command failed.
func (j *journal) archived(b *bed) (a archived, ok bool) {
	b.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(2 * testkit.Patience):
		b.t.Fatalf("%v does not end: %s", j.cmd.Args, j.errOut.String())
	}
	if !j.cmd.ProcessState.Success() {
		return a, false
	}
	if err := json.Unmarshal(j.out.Bytes(), &a); err != nil {
		b.t.Fatalf("%v says %q: %v", j.cmd.Args, j.out.String(), err)
	}
	return a, true
}

// interrupt waits for a random time and then kills, depending on the round, the
// command itself, the node that it called, or another node. If it killed a
// node, it starts the node again.
func (b *bed) interrupt(j *journal, round, asked int) {
	b.t.Helper()
	select {
	case <-time.After(time.Duration(b.rng.IntN(900)) * time.Millisecond):
	case <-j.ended:
	}
	if round%3 == 0 {
		j.kill()
		<-j.ended
		return
	}
	victim := asked
	if round%3 == 2 {
		victim = (asked + 1) % len(b.cluster.Nodes())
	}
	b.cluster.Kill(victim)
	b.killed++
	<-j.ended
	b.cluster.Node(victim).Start()
}

// exported exports the cluster, after several interrupted attempts.
func (b *bed) exported(dir string) (file string, a archived) {
	b.t.Helper()
	file = filepath.Join(dir, "cluster.hostd")
	for round := range 3 * *faults / 2 {
		asked := b.rng.IntN(len(b.cluster.Nodes()))
		j := b.journal("export", file, "-o", "json", "--addr", b.cluster.Node(asked).API())
		b.interrupt(j, round, asked)
		if _, err := os.Stat(file); err == nil { // the export completed before the kill, or in spite of it
			b.verifyArchive(file)
			if err := os.Remove(file); err != nil {
				b.t.Fatal(err)
			}
		} else if j.cmd.ProcessState.Success() {
			b.t.Fatalf("an export that succeeded has left nothing: %v", err)
		}
	}
	b.cluster.AwaitSpread()
	b.cluster.Await("an export succeeds", func() (ok bool) {
		j := b.journal("export", file, "-o", "json", "--addr", b.cluster.Node(0).API())
		a, ok = j.archived(b)
		return ok
	})
	if got := b.verifyArchive(file); got != a {
		b.t.Fatalf("the export says %+v, the file %+v", a, got)
	}
	return file, a
}

func (b *bed) verifyArchive(file string) archived {
	b.t.Helper()
	j := b.journal("verify", file, "-o", "json")
	a, ok := j.archived(b)
	if !ok {
		b.t.Fatalf("the file of an export: %s", j.errOut.String())
	}
	return a
}

// imported imports a file, after several interruptions. Each attempt continues
// the previous attempt.
func (b *bed) imported(file string, want archived) {
	b.t.Helper()
	for round := range 3 * *faults / 2 {
		asked := b.rng.IntN(len(b.cluster.Nodes()))
		j := b.journal("import", file, "-o", "json", "--addr", b.cluster.Node(asked).API())
		b.interrupt(j, round, asked)
		if text := j.errOut.String(); strings.Contains(text, "not empty") || strings.Contains(text, "nothing was imported") {
			b.t.Fatalf("an import that was interrupted before is refused: %s", text)
		}
		if n, err := b.listed("account", "transfer"); err == nil && n != want.Entities {
			b.t.Fatalf("%d entities are listed in an import that is under way, of %d", n, want.Entities)
		}
	}
	b.cluster.AwaitSpread()
	var got archived
	b.cluster.Await("the import succeeds", func() (ok bool) {
		j := b.journal("import", file, "-o", "json", "--addr", b.cluster.Node(0).API())
		got, ok = j.archived(b)
		return ok
	})
	if got != want {
		b.t.Fatalf("%+v was imported of %+v", got, want)
	}
}

// listed returns the number of entities of some types.
func (b *bed) listed(types ...string) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	for _, entityType := range types {
		for _, err := range b.c.List(ctx, &entityv1.ListEntitiesRequest{EntityType: entityType}) {
			if err != nil {
				return 0, err
			}
			n++
		}
	}
	return n, nil
}

// TestExportsAndImportsSurviveKills checks that a successful export contains
// all money, even if processes were killed before and although money is
// transferred meanwhile. The cluster that imports it must contain all money,
// too, however often the import was interrupted.
func TestExportsAndImportsSurviveKills(t *testing.T) {
	testkit.Long(t, "long")
	const accounts, start, workers = 12, 100, 4
	b := newBed(t)
	b.cluster.Push("account", "transfer")
	for i := range accounts {
		id := "a" + strconv.Itoa(i)
		if err := b.send("account", id, "open", nil); err != nil {
			t.Fatal(err)
		}
		if err := b.send("account", id, "deposit", map[string]any{"amount": start}); err != nil {
			t.Fatal(err)
		}
	}
	var next atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for w := range workers {
		rng := rand.New(rand.NewPCG(uint64(w), b.rng.Uint64()))
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				from := rng.IntN(accounts)
				to := (from + 1 + rng.IntN(accounts-1)) % accounts
				if err := b.send("transfer", fmt.Sprintf("t%d", next.Add(1)), "start", map[string]any{
					"from": "a" + strconv.Itoa(from), "to": "a" + strconv.Itoa(to), "amount": 1 + rng.IntN(30), "timeoutMs": 5000 * rng.IntN(2)}); err != nil && !errors.Is(err, errUnsure) {
					t.Errorf("start: %v", err)
					return
				}
			}
		})
	}
	b.cluster.Await("money moves", func() bool { return next.Load() > 50 })
	file, what := b.exported(t.TempDir())
	old := oldCursor(b)
	close(stop)
	load.Wait()
	sum, ended := b.money(accounts)
	if sum != accounts*start {
		t.Errorf("%d in all accounts, want %d", sum, accounts*start)
	}
	b.verify()

	to := &bed{t: t, rng: b.rng, cluster: testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 4, Flags: []string{"--admin", "full"}})}
	to.c = to.cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
	to.imported(file, what)
	sum, also := to.money(accounts)
	if sum != accounts*start || also == 0 || also > ended {
		t.Errorf("%d in all accounts, want %d; %d transfers of %d", sum, accounts*start, also, ended)
	}
	for _, err := range to.c.Subscribe(t.Context(), client.Subscription{EntityType: "account", Cursor: old}) {
		if client.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a cursor of the cluster before: %v", err)
		}
		break
	}
	t.Logf("%d transfers, %d of them in the file with %d sends on their way and %d timers; %d and %d kills of nodes", ended, also, what.Sends, what.Timers, b.killed, to.killed)
	to.verify()
}

// oldCursor returns the cursor of the first event of an account.
func oldCursor(b *bed) string {
	b.t.Helper()
	for d, err := range b.c.Subscribe(b.t.Context(), client.Subscription{EntityType: "account"}) {
		if err != nil {
			b.t.Fatal(err)
		}
		return d.Cursor()
	}
	b.t.Fatal("no account has an event")
	return ""
}

// money waits until every transfer has ended. It returns the total of all
// accounts and the number of transfers.
func (b *bed) money(accounts int) (sum int64, transfers int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*testkit.Patience)
	defer cancel()
	for e, err := range b.c.List(ctx, &entityv1.ListEntitiesRequest{EntityType: "transfer"}) {
		if err != nil {
			b.t.Fatal(err)
		}
		transfers++
		b.awaitEnd(e.GetEntityId())
	}
	for i := range accounts {
		sum += query[struct{ Balance int64 }](b, "account", "a"+strconv.Itoa(i), "balance").Balance
	}
	return sum, transfers
}

type transferStatus struct {
	State, From, To, Reason string
	TimedOut                bool
}

// awaitEnd waits until a transfer has ended. If it does not end, the test logs
// what the transfer's three entities are waiting for.
func (b *bed) awaitEnd(id string) {
	b.t.Helper()
	var s transferStatus
	ended := func() bool { return s.State == "done" || s.State == "failed" || s.State == "refunded" }
	defer func() {
		if ended() {
			return
		}
		b.t.Logf("transfer %s: %+v", id, s)
		for _, e := range [][2]string{{"transfer", id}, {"account", s.From}, {"account", s.To}} {
			info, err := b.c.Entity(b.t.Context(), e[0], e[1])
			b.t.Logf("%s %s: %v, %v", e[0], e[1], info, err)
		}
		for i := range b.cluster.Nodes() {
			b.t.Logf("%s: %v", b.cluster.Node(i).ID(), b.cluster.Shards(i))
		}
	}()
	b.cluster.Await("the transfer ends", func() bool {
		s = query[transferStatus](b, "transfer", id, "status")
		return ended()
	})
}
