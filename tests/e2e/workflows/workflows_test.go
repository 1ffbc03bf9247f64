// Package workflows tests workflow types with the real program: nodes are
// killed while runs wait, and modules change. It never runs a node in the
// test's process; the processes that it starts end with the test.
package workflows

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

var (
	runCount  = flag.Int("runs", 12, "how many runs are started")
	signals   = flag.Int("signals", 1200, "how many signals a run with checkpoints receives; above 10,000 it is also truncated")
	killCount = flag.Int("kills", 3, "how often nodes are killed")
	seedFlag  = flag.Uint64("seed", 0, "of the kills; 0 draws one")
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// runState is a run as callers see it.
type runState struct {
	Status   string
	Steps    int
	WaitsFor []string
	Result   struct {
		Paid, Returned int64
		Refused        []string
		By             string
	}
	Code, Message string
}

// bank is a cluster with accounts and payouts.
type bank struct {
	t       *testing.T
	cluster *testkit.Cluster
	c       *client.Client
	rng     *rand.Rand
}

const (
	recipients = 10
	amount     = 10
	funds      = 1_000_000
)

func newBank(t *testing.T, nodes int) *bank {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	b := &bank{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	b.cluster = testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: 6, Flags: []string{"--admin", "full"}})
	b.c = b.cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
	b.push(testkit.BuildExample(t, "account"))
	b.push(testkit.BuildExample(t, "payout"))
	for i := range recipients - 1 { // the last account is never opened
		b.send("account", fmt.Sprint("to-", i), "open", "")
	}
	b.send("account", "from", "deposit", fmt.Sprintf(`{"amount":%d}`, funds))
	return b
}

func (b *bank) push(wasm []byte) {
	b.t.Helper()
	if _, err := b.c.Upload(b.t.Context(), wasm, true); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bank) send(entityType, id, command, data string) {
	b.t.Helper()
	if _, err := b.c.Send(b.t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: command, Data: []byte(data)}); err != nil {
		b.t.Fatalf("%s %s: %v", command, id, err)
	}
}

// start starts a run that pays all recipients.
func (b *bank) start(id string, approve bool, pause time.Duration) {
	b.t.Helper()
	to := make([]string, recipients)
	for i := range to {
		to[i] = fmt.Sprintf("%q", fmt.Sprint("to-", i))
	}
	b.send("payout", id, "start", fmt.Sprintf(`{"from":"from","to":[%s],"amount":%d,"approve":%v,"pauseMillis":%d}`, strings.Join(to, ","), amount, approve, pause.Milliseconds()))
}

func query[S any](b *bank, entityType, id, name string) (s S) {
	b.t.Helper()
	r, err := b.c.Query(b.t.Context(), client.Query{EntityType: entityType, EntityID: id, Name: name})
	if err == nil {
		err = json.Unmarshal(r.Data, &s)
	}
	if err != nil {
		b.t.Fatalf("%s of %s %s: %v", name, entityType, id, err)
	}
	return s
}

// finish waits for the end of a run and checks its result.
func (b *bank) finish(id string) {
	b.t.Helper()
	var s runState
	b.cluster.Await("run "+id+" ends", func() bool {
		s = query[runState](b, "payout", id, "state")
		return s.Status != "running"
	})
	if s.Status != "completed" || s.Result.Paid != amount*(recipients-1) || s.Result.Returned != amount || len(s.Result.Refused) != 1 || s.Result.Refused[0] != fmt.Sprint("to-", recipients-1) {
		b.t.Errorf("run %s: %+v", id, s)
	}
}

// balances checks the accounts after a number of finished runs.
func (b *bank) balances(runs int64) {
	b.t.Helper()
	type balance struct{ Balance int64 }
	if got, want := query[balance](b, "account", "from", "balance").Balance, funds-runs*amount*(recipients-1); got != want {
		b.t.Errorf("the source has %d, want %d", got, want)
	}
	for i := range recipients {
		want := runs * amount
		if i == recipients-1 {
			want = 0
		}
		if got := query[balance](b, "account", fmt.Sprint("to-", i), "balance").Balance; got != want {
			b.t.Errorf("recipient %d has %d, want %d", i, got, want)
		}
	}
}

// TestRunsSurviveKills kills nodes while runs of 21 calls and 9 sleeps are in
// the middle of their steps, on one node and on three. Every run ends with the
// right result, and no step is lost or made twice.
func TestRunsSurviveKills(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			b := newBank(t, nodes)
			for i := range *runCount {
				b.start(fmt.Sprint("r", i), false, 50*time.Millisecond)
			}
			for range *killCount {
				time.Sleep(time.Duration(b.rng.Int64N(int64(300 * time.Millisecond))))
				i := b.rng.IntN(nodes)
				b.cluster.Kill(i)
				if nodes == 1 {
					b.cluster.Node(i).MustVerify()
				}
				b.cluster.Restart(i)
			}
			for i := range *runCount {
				b.finish(fmt.Sprint("r", i))
			}
			b.balances(int64(*runCount))
		})
	}
}

// TestModulesThatBreakRunsAreRefused pushes modules while runs wait in the
// middle of their steps. A module that pays a different amount in that step is
// rejected, and the error names the run, the step and the difference. A module
// that adds a step at the end is activated. The runs then end with that step,
// and a run that ended before is unaffected.
func TestModulesThatBreakRunsAreRefused(t *testing.T) {
	b := newBank(t, 1)
	b.start("ended", false, 0)
	b.finish("ended")
	for i := range 3 {
		b.start(fmt.Sprint("r", i), false, time.Hour) // each waits after the first payment
	}
	b.start("approved", true, 0)
	for i := range 3 {
		b.cluster.Await("the run waits", func() bool {
			s := query[runState](b, "payout", fmt.Sprint("r", i), "state")
			return len(s.WaitsFor) == 1 && s.WaitsFor[0] == "sleep"
		})
	}
	_, err := b.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/workflows/breaking"), true)
	if text := fmt.Sprint(err); err == nil || !strings.Contains(text, "run r") || !strings.Contains(text, "step 2: the code asks for call account/to-0 deposit with another payload") {
		t.Fatalf("a module that breaks runs: %v", err)
	}
	b.cluster.Kill(0)
	b.cluster.Restart(0)
	if s := query[runState](b, "payout", "approved", "state"); s.Status != "running" || len(s.WaitsFor) != 1 || s.WaitsFor[0] != "wait approval" {
		t.Errorf("a run after the refusal: %+v", s)
	}
	b.push(testkit.BuildGuest(t, "tests/e2e/workflows/later"))
	b.send("payout", "approved", "signal", `{"name":"approval","value":{"by":"bo"}}`)
	b.finish("approved")
	if s := query[runState](b, "payout", "approved", "state"); s.Result.By != "bo" || s.Steps != 1+2*recipients+1+1 {
		t.Errorf("the run of the later module: %+v", s)
	}
	type balance struct{ Balance int64 }
	if got := query[balance](b, "account", "bank", "balance").Balance; got != 1 {
		t.Errorf("the added step was made %d times", got)
	}
	if s := query[runState](b, "payout", "ended", "state"); s.Status != "completed" || s.Steps != 2*recipients+1 {
		t.Errorf("the run that ended before: %+v", s)
	}
}

// TestPartsOfRunsMoveOnlyIfTheyCanContinue: a canary, its promotion and abort, and
// a rollback are refused if a run that would move cannot continue with the other
// module. A canary without such runs begins, and a run that it has begun stays
// with its module when the canary is aborted.
func TestPartsOfRunsMoveOnlyIfTheyCanContinue(t *testing.T) {
	b := newBank(t, 1)
	breaking, err := b.c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/workflows/breaking"), false)
	if err != nil {
		t.Fatal(err)
	}
	pausing := func(id string) {
		t.Helper()
		b.start(id, false, time.Hour) // it waits after the first payment
		b.cluster.Await("the run waits", func() bool {
			s := query[runState](b, "payout", id, "state")
			return len(s.WaitsFor) == 1 && s.WaitsFor[0] == "sleep"
		})
	}
	refused := func(what, run string, err error) {
		t.Helper()
		if text := fmt.Sprint(err); err == nil || !strings.Contains(text, run) || !strings.Contains(text, "step 2: the code asks for call account/to-0 deposit with another payload") {
			t.Errorf("%s: %v", what, err)
		}
	}
	canary := func(prefix string) error {
		_, err := client.ActivateModule(t.Context(), b.c, &modulev1.ActivateModuleRequest{EntityType: "payout", Digest: breaking.Digest, Rollout: &modulev1.RolloutPlan{Prefix: prefix}})
		return err
	}
	pausing("old-1")
	refused("a canary", "run old-1", canary("old-"))
	b.send("payout", "old-1", "terminate", "")
	if err := canary("new-"); err != nil {
		t.Fatalf("a canary without runs that cannot continue: %v", err)
	}
	pausing("old-2")
	change := func(action modulev1.ChangeRolloutRequest_Action) (*modulev1.Rollout, error) {
		res, err := client.ChangeRollout(t.Context(), b.c, &modulev1.ChangeRolloutRequest{EntityType: "payout", Action: action})
		return res.GetRollout(), err
	}
	_, err = change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE)
	refused("a promotion", "run old-2", err)
	b.send("payout", "old-2", "terminate", "")
	pausing("new-1")
	rollout, err := change(modulev1.ChangeRolloutRequest_ACTION_ABORT)
	if err != nil || !slices.Equal(rollout.GetRemainingEntityIds(), []string{"new-1"}) {
		t.Errorf("an abort: %v, %v", rollout, err)
	}
	if err := canary("new-"); err != nil {
		t.Fatalf("a second canary: %v", err)
	}
	if _, err := change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE); err != nil {
		t.Fatalf("a promotion without runs that cannot continue: %v", err)
	}
	_, err = b.c.Rollback(t.Context(), "payout")
	refused("a rollback", "run new-1", err)
	if s := query[runState](b, "payout", "new-1", "state"); s.Status != "running" || len(s.WaitsFor) != 1 || s.WaitsFor[0] != "sleep" {
		t.Errorf("the run after the refusals: %+v", s)
	}
}

// TestCheckpointsSurviveKills lets a run receive signals and make checkpoints
// while its node is killed. Meanwhile a module is pushed with which only runs
// that have made a checkpoint can continue. The module is rejected because of a
// run that has not made a checkpoint yet, and is activated once that run has
// made a checkpoint. Every signal counts once. If the run has more steps than a
// run may have without checkpoints, its first events are outside the
// idempotency window and are truncated.
func TestCheckpointsSurviveKills(t *testing.T) {
	const every = 50
	cluster := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 6, Flags: []string{"--admin", "full"}})
	b := &bank{t: t, cluster: cluster, c: cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})}
	b.push(testkit.BuildExample(t, "account"))
	b.push(testkit.BuildGuest(t, "tests/e2e/workflows/collect"))
	for _, key := range []string{"retain-events", "retain-snapshots"} {
		if _, err := b.c.PutSetting(t.Context(), "entity.collect."+key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	total := *signals / every * every
	start := func(id string) {
		b.send("collect", id, "start", fmt.Sprintf(`{"signals":%d,"every":%d}`, total, every))
	}
	sent := map[string]int{}
	signal := func(id string, more int) {
		t.Helper()
		failed, began := make(chan error, 8), time.Now()
		for i := range cap(failed) {
			go func() {
				var err error
				for n := sent[id] + i; err == nil && n < sent[id]+more; {
					_, err = b.c.Send(t.Context(), client.Command{EntityType: "collect", EntityID: id, Name: "signal", Data: fmt.Appendf(nil, `{"name":"add","value":{"amount":%d}}`, n)})
					switch {
					case err == nil:
						n += cap(failed)
					case strings.Contains(err.Error(), "resource_exhausted") && time.Since(began) < testkit.Patience:
						time.Sleep(10 * time.Millisecond) // the run's queue of signals is full, so retry
						err = nil
					}
				}
				failed <- err
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		sent[id] += more
	}
	start("old")
	start("young")
	signal("young", every-1)
	for range 3 {
		signal("old", total/4)
		cluster.Kill(0)
		cluster.Node(0).MustVerify()
		cluster.Restart(0)
	}
	other := testkit.BuildGuest(t, "tests/e2e/workflows/collectother")
	if _, err := b.c.Upload(t.Context(), other, true); err == nil || !strings.Contains(err.Error(), "run young, step 1: the code asks for send account/sink deposit, the history has wait add") {
		t.Fatalf("a module that differs before the checkpoint: %v", err)
	}
	signal("young", 1)
	cluster.Await("the run makes its first checkpoint", func() bool {
		return query[runState](b, "collect", "young", "state").Steps > every+1
	})
	b.push(other)
	cluster.Kill(0)
	cluster.Restart(0)
	signal("old", total-sent["old"])
	var result struct {
		Status string
		Result struct{ At, Sum int }
	}
	cluster.Await("the run ends", func() bool {
		result = query[struct {
			Status string
			Result struct{ At, Sum int }
		}](b, "collect", "old", "state")
		return result.Status != "running"
	})
	if result.Status != "completed" || result.Result.At != total || result.Result.Sum != total*(total-1)/2 {
		t.Errorf("%+v", result)
	}
	if got := query[struct{ Balance int }](b, "account", "sink", "balance").Balance; got != total+every {
		t.Errorf("the deposits are %d, want %d", got, total+every)
	}
	api := entityv1connect.NewEntityServiceClient(http.DefaultClient, cluster.Node(0).API())
	at := uint64(every)
	_, err := api.GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "collect", EntityId: "old", AtSequence: &at}))
	if truncated := connect.CodeOf(err) == connect.CodeOutOfRange; truncated != (total > 10_000+2*every) || err != nil && !truncated {
		t.Errorf("the state at event %d of a run of %d signals: %v", every, total, err)
	}
	cluster.Kill(0)
	cluster.Node(0).MustVerify()
}

// TestChildRunsNest lets each run start a child run while their node is killed.
// Each run gets the result of its child. At a depth of more than 32 the start
// of a child is rejected, and all runs above it fail with the code of that
// rejection.
func TestChildRunsNest(t *testing.T) {
	cluster := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 6, Flags: []string{"--admin", "full"}})
	b := &bank{t: t, cluster: cluster, c: cluster.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})}
	b.push(testkit.BuildGuest(t, "tests/e2e/workflows/nested"))
	depths := []int{0, 1, 20, 32, 33, 60}
	for _, depth := range depths {
		b.send("nested", fmt.Sprint("r", depth), "start", fmt.Sprintf(`{"depth":%d}`, depth))
	}
	cluster.Kill(0)
	cluster.Node(0).MustVerify()
	cluster.Restart(0)
	for _, depth := range depths {
		var s struct {
			Status, Code string
			Result       struct{ Runs int }
		}
		cluster.Await("the run ends", func() bool {
			s = query[struct {
				Status, Code string
				Result       struct{ Runs int }
			}](b, "nested", fmt.Sprint("r", depth), "state")
			return s.Status != "running"
		})
		if deep := depth > 32; deep && s.Code != "too_deep" || !deep && s.Result.Runs != depth+1 {
			t.Errorf("a run with %d below it: %+v", depth, s)
		}
	}
}

// TestGuideShowsTheExample checks that the functions on the guide's page are
// the functions that the tests run, in the same order.
func TestGuideShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(page)
	for _, file := range []string{"../../../examples/wasm/payout/main.go", "nested/main.go", "collect/main.go"} {
		program, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var block string
		var ok bool
		if _, rest, ok = strings.Cut(rest, "```go\n"); ok {
			block, rest, ok = strings.Cut(rest, "```")
		}
		for part := range strings.SplitSeq(block, "\nvar _") {
			if !ok || !strings.Contains(string(program), part) {
				t.Errorf("the page shows another program than %s", file)
			}
		}
	}
}

// TestGuideShowsWhatIsPrinted runs the commands of the guide's page on a node,
// and checks that their output is the output on the page. Then it reads the
// state after each event of that run. After the last event of a command, it
// must be the state that callers saw. After an earlier event, it must also
// describe the function's next step.
func TestGuideShowsWhatIsPrinted(t *testing.T) {
	cluster := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 6})
	cluster.Push("account", "payout")
	node := cluster.Node(0)
	page, err := os.ReadFile("../../../docs/guide/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	printsWhatIsShown(t, cluster, string(page), "must be open:\n\n")

	api := entityv1connect.NewEntityServiceClient(http.DefaultClient, node.API())
	ahead := map[uint64]string{
		1: "step 1: the code asks for wait approval, the history ends there", 4: "step 2: the code asks for call account/alice withdraw, the history ends there",
		6: "step 3: the code asks for call account/bob deposit, the history ends there", 8: "step 4: the code asks for call account/alice withdraw, the history ends there",
		10: "step 5: the code asks for call account/carol deposit, the history ends there", 12: "step 6: the code returns, the history waits for nothing",
	}
	waits := map[uint64]string{2: "wait approval", 3: "wait approval", 5: "call account/alice withdraw", 7: "call account/bob deposit", 9: "call account/alice withdraw", 11: "call account/carol deposit"}
	for at := uint64(1); at <= 13; at++ {
		res, err := api.GetState(t.Context(), connect.NewRequest(&entityv1.GetStateRequest{EntityType: "payout", EntityId: "p1", AtSequence: &at}))
		if err != nil {
			t.Fatalf("the state at %d: %v", at, err)
		}
		var got struct {
			Status, Ahead string
			WaitsFor      []string
		}
		text, err := res.Msg.GetJson().MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatalf("the state at %d: %v", at, err)
		}
		status, next, waitsFor := "running", ahead[at], []string(nil)
		if next != "" {
			next = "run p1, " + next
		}
		if at == 13 {
			status = "completed"
		}
		if w := waits[at]; w != "" {
			waitsFor = []string{w}
		}
		if got.Status != status || got.Ahead != next || !slices.Equal(got.WaitsFor, waitsFor) {
			t.Errorf("the state at %d: %s", at, text)
		}
	}
}

// printsWhatIsShown runs the commands that a page shows after a text. They print
// the lines that follow, one for each command.
func printsWhatIsShown(t *testing.T, cluster *testkit.Cluster, page, after string) {
	t.Helper()
	node := cluster.Node(0)
	_, sample, _ := strings.Cut(page, after)
	commands, sample, _ := strings.Cut(sample, "\n\n")
	replies, _, _ := strings.Cut(sample, "\n\n")
	want := strings.Split(replies, "\n")
	lines := strings.Split(commands, "\n")
	if len(lines) < 4 || len(lines) != len(want) {
		t.Fatalf("the page has %d commands and %d replies", len(lines), len(want))
	}
	for i, line := range lines {
		args := strings.Fields(strings.ReplaceAll(line, "'", ""))
		args = append(args[1:], "--addr", node.Address())
		cluster.Await(line+" prints what the page shows", func() bool {
			out, code := node.Run(args...)
			got, _, _ := strings.Cut(out, "\n")
			if code != 0 {
				t.Fatalf("%v: %s", args, out)
			}
			if got == strings.TrimSpace(want[i]) {
				return true
			}
			if args[1] != "query" || !strings.Contains(got, `"running"`) { // only the end of the run takes time, so only this query is retried
				t.Fatalf("%v prints %s, the page shows %s", args, got, want[i])
			}
			return false
		})
	}
}
