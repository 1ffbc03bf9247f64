package quota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// world has quotas on a clock that the test sets, and callers.
type world struct {
	*Quotas
	now     time.Time
	table   *authz.Table
	callers map[string]context.Context // by name; "" has no credential
	metrics *prometheus.Registry
}

// Table returns the roles.
func (w *world) Table() *authz.Table { return w.table }

func newWorld(t testing.TB, anonymous bool, roles []access.Role, bindings ...access.Binding) *world {
	t.Helper()
	w := &world{now: time.Unix(1_000_000, 0), callers: map[string]context.Context{}, metrics: prometheus.NewRegistry()}
	w.set(roles, bindings...)
	w.Quotas = New(Options{Roles: w, Anonymous: anonymous, Now: func() time.Time { return w.now }, Registerer: w.metrics})
	names := []string{"root"}
	for _, b := range bindings {
		if kind, name := access.SplitSubject(b.Subject); kind == access.KindToken && name != "root" {
			names = append(names, name)
		}
	}
	w.know(t, names...)
	return w
}

// set puts roles in force; root is admin.
func (w *world) set(roles []access.Role, bindings ...access.Binding) {
	w.table = authz.Compile(1, roles, append(bindings, access.Binding{Subject: "token:root", Roles: []string{access.RoleAdmin}}))
}

// know makes the contexts of calls as the server does.
func (w *world) know(t testing.TB, names ...string) {
	t.Helper()
	token, lines := map[string]string{"": ""}, strings.Builder{}
	for _, name := range names {
		token[name] = authn.NewToken()
		line, err := authn.TokenLine(name, token[name], time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&lines, line)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	auth, err := authn.New(authn.Options{Anonymous: true, TokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	for name, credential := range token {
		r := httptest.NewRequest(http.MethodPost, "/hostd.entity.v1.EntityService/SendCommand", nil)
		if credential != "" {
			r.Header.Set("Authorization", "Bearer "+credential)
		}
		auth.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { w.callers[name] = r.Context() }), func(string) string { return "" }).ServeHTTP(httptest.NewRecorder(), r)
		if w.callers[name] == nil {
			t.Fatalf("%q is not let in", name)
		}
	}
}

// refused returns the quota that an error names and how long to wait.
func refused(t testing.TB, err error) (which access.Quota, wait time.Duration) {
	t.Helper()
	over, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	info, ok := over.Detail().(*errdetails.RetryInfo)
	if !ok || info.GetRetryDelay().AsDuration() != over.RetryAfter || over.RetryAfter <= 0 || !strings.Contains(err.Error(), over.Quota.String()) {
		t.Fatalf("%v tells %v", over, info)
	}
	return over.Quota, over.RetryAfter
}

func small(q access.Quotas) ([]access.Role, access.Binding) {
	return []access.Role{{Name: "small", Quotas: q}}, access.Binding{Subject: "token:a", Roles: []string{"small", "invoker"}}
}

// TestCommandsPerSecond: as many commands as the quota are admitted at once, no
// more, and then one more for each fraction of a second.
func TestCommandsPerSecond(t *testing.T) {
	for _, perSecond := range []int{1, 7, 1000} {
		roles, a := small(access.Quotas{CommandsPerSecond: int64(perSecond)})
		w := newWorld(t, false, roles, a)
		burst := func() (n int, err error) {
			for ; err == nil; n++ {
				err = w.Of(w.callers["a"]).Take(1 << 20)
			}
			return n - 1, err
		}
		n, err := burst()
		which, wait := refused(t, err)
		if n != perSecond || which != access.CommandsPerSecond || wait > time.Second/time.Duration(perSecond)+time.Microsecond {
			t.Errorf("%d a second: %d at once, then %v", perSecond, n, err)
		}
		w.now = w.now.Add(wait)
		if n, _ := burst(); n != 1 {
			t.Errorf("%d a second: %d after the wait", perSecond, n)
		}
		w.now = w.now.Add(time.Hour)
		if n, _ := burst(); n != perSecond {
			t.Errorf("%d a second: %d after an hour", perSecond, n)
		}
		w.now = w.now.Add(-time.Minute)
		w.now = w.now.Add(time.Minute + time.Second)
		if n, _ := burst(); n != perSecond {
			t.Errorf("%d a second: %d after the clock was set back and on", perSecond, n)
		}
		if got := testutil.ToFloat64(w.refused.WithLabelValues("commands-per-second", "small")); got != 4 {
			t.Errorf("%v refusals were counted", got)
		}
	}
}

// TestNothingIsAdmittedUntilOverdraftIsPaid: the cost in fuel and bytes is known only afterwards,
// and nothing more is admitted until an overdraft is paid.
func TestNothingIsAdmittedUntilOverdraftIsPaid(t *testing.T) {
	roles, a := small(access.Quotas{FuelPerSecond: 1000, BytesPerSecond: 500})
	for _, tt := range []struct {
		payload, reply int
		fuel           uint64
		which          access.Quota
		wait           time.Duration // 0: the next one is admitted at once
	}{
		{500, 0, 1000, 0, 0},
		{250, 250, 1000, 0, 0},
		{0, 0, 1001, access.FuelPerSecond, time.Millisecond},
		{0, 0, 4000, access.FuelPerSecond, 3 * time.Second},
		{1000, 0, 0, access.BytesPerSecond, time.Second},
		{0, 1000, 0, access.BytesPerSecond, time.Second},
		{0, 0, 1 << 60, access.FuelPerSecond, time.Minute}, // the maximum wait
	} {
		w := newWorld(t, false, roles, a)
		account := w.Of(w.callers["a"])
		if err := account.Take(tt.payload); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		account.Spend(tt.fuel, tt.reply)
		if tt.wait == 0 {
			if err := w.Of(w.callers["a"]).Take(0); err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		which, wait := refused(t, w.Of(w.callers["a"]).Take(0))
		if which != tt.which || (wait-tt.wait).Abs() > time.Millisecond {
			t.Errorf("%+v: refused by %s for %v", tt, which, wait)
		}
		w.now = w.now.Add(wait - time.Millisecond/2)
		if err := w.Of(w.callers["a"]).Take(0); err == nil {
			t.Errorf("%+v: let in before it is paid", tt)
		}
		w.now = w.now.Add(time.Millisecond / 2)
		if err := w.Of(w.callers["a"]).Take(0); err != nil {
			t.Errorf("%+v: after the wait: %v", tt, err)
		}
	}
}

// TestConcurrentUseIsLimited: connections, streams and uploads are admitted up to the limit,
// and again after some have ended.
func TestConcurrentUseIsLimited(t *testing.T) {
	roles, a := small(access.Quotas{Streams: 3})
	w := newWorld(t, false, roles, a, access.Binding{Subject: "token:b", Roles: []string{"viewer"}}, access.Binding{Subject: "token:c", Roles: []string{"viewer"}})
	open := func(name string, which access.Quota) (*Account, error) {
		account := w.open(w.callers[name])
		if err := account.enter(which); err != nil {
			w.close(account)
			return nil, err
		}
		return account, nil
	}
	shut := func(account *Account, which access.Quota) { account.leave(which); w.close(account) }
	for name, most := range map[string]map[access.Quota]int{
		"a": {access.OpenStreams: 3, access.Uploads: 1, access.Connections: 128},
		"b": {access.OpenStreams: 64, access.Uploads: 1, access.Connections: 128},
	} {
		for which, limit := range most {
			var opened []*Account
			for range limit {
				account, err := open(name, which)
				if err != nil {
					t.Fatalf("%s: %s %d of %d: %v", name, which, len(opened)+1, limit, err)
				}
				opened = append(opened, account)
			}
			_, err := open(name, which)
			if got, _ := refused(t, err); got != which {
				t.Errorf("%s: one more of %s is refused by %s", name, which, got)
			}
			if other, err := open("c", which); err != nil {
				t.Errorf("%s: another caller is refused: %v", which, err)
			} else {
				shut(other, which)
			}
			shut(opened[0], which)
			if opened[0], err = open(name, which); err != nil {
				t.Errorf("%s: %s after one has ended: %v", name, which, err)
			}
			for _, account := range opened {
				shut(account, which)
			}
		}
	}
	if len(w.accounts) != 0 {
		t.Errorf("%d accounts are kept of which nothing is left", len(w.accounts))
	}
	for range 200 { // an admin has no quota
		if _, err := open("root", access.Uploads); err != nil {
			t.Fatal(err)
		}
	}
	w.set(roles, a)
	if account := w.open(w.callers["a"]); account == nil {
		t.Error("a caller with a quota has no account")
	}
	w.table = authz.Compile(2, roles, []access.Binding{a})
	if w.open(w.callers["a"]) != nil || w.Of(w.callers["a"]) != nil {
		t.Error("there are quotas although nobody is admin")
	}
}

// TestCompilerTime: the quota of a minute is available at once, and an overdraft
// must be waited for.
func TestCompilerTime(t *testing.T) {
	w := newWorld(t, false, nil, access.Binding{Subject: "token:a", Roles: []string{"deployer"}})
	account := w.open(w.callers["a"])
	for range 3 {
		if err := account.compiles(); err != nil {
			t.Fatal(err)
		}
		account.chargeCompile(25 * time.Second)
	}
	if which, wait := refused(t, account.compiles()); which != access.CompileSeconds || wait.Round(time.Millisecond) != 15*time.Second {
		t.Errorf("after 75 s: refused by %s for %v", which, wait)
	}
	w.close(account)
	if len(w.accounts) != 1 {
		t.Error("what is owed was forgotten")
	}
	w.now = w.now.Add(15 * time.Second)
	if err := w.open(w.callers["a"]).compiles(); err != nil {
		t.Error(err)
	}
}

// TestChangedRolesApplyToNextCall: changed roles apply to the next call, and earlier
// usage still counts.
func TestChangedRolesApplyToNextCall(t *testing.T) {
	roles, a := small(access.Quotas{CommandsPerSecond: 2})
	w := newWorld(t, false, roles, a)
	take := func() error { return w.Of(w.callers["a"]).Take(0) }
	if err := errors.Join(take(), take()); err != nil {
		t.Fatal(err)
	}
	refused(t, take())
	roles[0].Quotas.CommandsPerSecond = 20
	w.set(roles, a)
	refused(t, take()) // this second's quota is used up
	w.now = w.now.Add(time.Second / 2)
	for range 10 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, take())
	w.set(roles, access.Binding{Subject: "token:a", Roles: []string{"invoker"}})
	for range 100 {
		if err := take(); err != nil {
			t.Fatal(err)
		}
	}
	w.set(roles, a)
	roles[0].Quotas = access.Quotas{CommandsPerSecond: access.Unlimited}
	w.set(roles, a)
	if w.Of(w.callers["a"]) != nil {
		t.Error("who has no bound has an account")
	}
}

// TestAnonymousHaveQuotas: anonymous callers have quotas on a node that also
// serves callers with credentials.
func TestAnonymousHaveQuotas(t *testing.T) {
	for _, beside := range []bool{true, false} {
		w := newWorld(t, beside, nil, access.Binding{Subject: "anonymous", Roles: []string{"invoker"}})
		n := int64(0)
		for ; n <= access.AnonymousQuotas().CommandsPerSecond && w.Of(w.callers[""]).Take(0) == nil; n++ {
		}
		if beside != (n == access.AnonymousQuotas().CommandsPerSecond) {
			t.Errorf("beside others %v: %d commands of the anonymous were let in", beside, n)
		}
		if w.Of(w.callers["root"]) != nil {
			t.Error("others have their quota")
		}
		w.set([]access.Role{{Name: "more", Quotas: access.Quotas{CommandsPerSecond: 3000}}}, access.Binding{Subject: "anonymous", Roles: []string{"invoker", "more"}})
		w.now = w.now.Add(time.Second)
		if most := w.Of(w.callers[""]).limits[access.CommandsPerSecond].Most; most != 3000 {
			t.Errorf("a role says 3000, and %d counts", most)
		}
	}
}

// TestAccountsAreBounded: accounts whose buckets are full are removed first, and
// accounts with something open stay.
func TestAccountsAreBounded(t *testing.T) {
	roles, _ := small(access.Quotas{CommandsPerSecond: 1})
	w := newWorld(t, false, roles)
	caller := func(i int) *principal.Principal {
		return &principal.Principal{Kind: principal.JWT, Name: fmt.Sprint(i)}
	}
	limits := authz.Limits{access.CommandsPerSecond: {Most: 1, Role: "small"}}
	use := func(i int) error { l := limits; return w.account(caller(i), &l, 0).Take(0) }
	opened := limits
	w.account(caller(-1), &opened, 1)
	for i := range maxIdle {
		if i != 3 { // this account's buckets are full
			if err := use(i); err != nil {
				t.Fatal(i, err)
			}
		} else {
			l := limits
			w.account(caller(i), &l, 0)
		}
	}
	for i := range 2 * maxIdle {
		if err := use(maxIdle + i); err != nil {
			t.Fatal(i, err)
		}
		if len(w.accounts) != maxIdle+1 || w.idle.Len() != maxIdle {
			t.Fatalf("%d accounts, %d of them idle", len(w.accounts), w.idle.Len())
		}
		if i == 0 {
			if err := use(0); err == nil {
				t.Fatal("an account that had used its quota went before one that had not")
			}
		}
	}
	if w.accounts[key{principal.JWT, "-1"}] == nil {
		t.Error("the account of who has something open is forgotten")
	}
}

func TestCallersWithoutQuotaCostNothing(t *testing.T) {
	for what, w := range costs(t) {
		call := w.callers["b"]
		if n := testing.AllocsPerRun(100, func() {
			a := w.Of(call)
			if err := a.Take(100); a != nil || err != nil {
				t.Fatal("there is a quota")
			}
			a.Spend(100, 100)
		}); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// costs returns worlds in which b has no per-second quota.
func costs(t testing.TB) map[string]*world {
	roles, a := small(access.Quotas{CommandsPerSecond: 1 << 40, FuelPerSecond: 1 << 40, BytesPerSecond: 1 << 40})
	b := access.Binding{Subject: "token:b", Roles: []string{"invoker"}}
	return map[string]*world{"nobody has any": newWorld(t, false, nil, b), "another one has": newWorld(t, false, roles, a, b)}
}

func BenchmarkCall(b *testing.B) {
	call := func(b *testing.B, w *world, ctx context.Context) {
		b.ReportAllocs()
		for b.Loop() {
			a := w.Of(ctx)
			if err := a.Take(100); err != nil {
				b.Fatal(err)
			}
			a.Spend(1000, 100)
		}
	}
	for what, w := range costs(b) {
		b.Run(what, func(b *testing.B) { call(b, w, w.callers["b"]) })
		if w.callers["a"] != nil {
			b.Run("it has one", func(b *testing.B) { call(b, w, w.callers["a"]) })
		}
	}
}
