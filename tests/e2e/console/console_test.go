// Package console tests the web console in a browser on real nodes.
package console

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// programs are the possible names of the browser. The first program found is
// used.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// browser starts a browser for a test, or skips the test if there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("needs a browser: " + strings.Join(programs, " or "))
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(path), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(testkit.Patience), chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(stop)
	return ctx
}

// page is a tab, with its requests and errors.
type page struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	asked  []string // URLs of the page's requests
	faults []string // exceptions and violations of the content security policy
}

// open opens a tab. in is a browser, or a tab of the browser to use.
func open(t *testing.T, in context.Context) *page {
	t.Helper()
	ctx, stop := chromedp.NewContext(in)
	t.Cleanup(stop)
	p := &page{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	err := chromedp.Listen(ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			p.asked = append(p.asked, e.Request.URL)
		case *runtime.EventExceptionThrown:
			p.faults = append(p.faults, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.run("watch", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, network.Enable, network.EnableParams{})
		return err
	}))
	ctx, cancel := context.WithTimeout(ctx, 4*testkit.Patience)
	t.Cleanup(cancel)
	p.ctx = ctx
	return p
}

func (p *page) run(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		p.t.Fatalf("%s: %v; the page says:\n%s", what, err, text)
	}
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// await waits until a JavaScript expression is true.
func (p *page) await(what, expression string) {
	p.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); !eval[bool](p, "!!("+expression+")"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("never: %s; the page says:\n%s", what, eval[string](p, "document.body.innerText"))
		}
	}
}

// shot saves a screenshot of the page in the directory HOSTD_TEST_SHOTS.
func (p *page) shot(name string) {
	p.t.Helper()
	screenshot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil || len(screenshot) == 0 {
		p.t.Fatalf("the screenshot has %d bytes: %v", len(screenshot), err)
	}
	if dir := os.Getenv("HOSTD_TEST_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), screenshot, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
}

// clean fails the test if the page had an error or sent a request to anything
// except the node.
func (p *page) clean(node string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		p.t.Errorf("the page complains: %s", f)
	}
	for _, asked := range p.asked {
		if u, err := url.Parse(asked); err != nil || u.Scheme != "data" && u.Scheme+"://"+u.Host != node {
			p.t.Errorf("the page asks for %s", asked)
		}
	}
	if len(p.asked) == 0 {
		p.t.Error("no request of the page was seen")
	}
}

// TestMapFollowsACluster checks that the map shows the leader of each shard,
// and updates itself when a node is killed.
func TestMapFollowsACluster(t *testing.T) {
	tab := browser(t)
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 16, Flags: []string{"--admin", "full"}})
	c.AwaitSpread()
	p := open(t, tab)
	node := c.Node(0).API()
	p.run("open", chromedp.Navigate(node+"/"))
	if at := eval[string](p, "location.pathname"); at != "/console/" {
		t.Errorf("/ leads a browser to %s", at)
	}
	const led = `[...document.querySelectorAll("[data-node]")].map((n) => Number(n.dataset.led))`
	p.await("every node leads shards", led+`.length === 3 && `+led+`.every((n) => n > 0)`)
	p.shot("cluster")
	c.Kill(2)
	p.await("the node that was killed is shown as gone, and others lead its shards",
		`document.querySelector("[data-node=n3]").dataset.reachable === "false" && document.querySelector("[data-node=n3]").dataset.led === "0" && `+led+`.reduce((a, b) => a + b) === 16`)
	p.shot("cluster-without-a-node")
	// Eight tabs share the browser's connections to a node.
	tabs := []*page{p}
	for range 7 {
		next := open(t, p.ctx)
		next.run("open", chromedp.Navigate(node+"/console/"))
		tabs = append(tabs, next)
	}
	for _, next := range tabs {
		next.await("every tab shows the nodes", `document.querySelectorAll("[data-node]").length === 3`)
		next.clean(node)
	}
	if done := evalAsync(tabs[7], `fetch("/hostd.cluster.v1.ClusterService/GetCluster", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}", signal: AbortSignal.timeout(20000)}).then((r) => r.ok)`); done != "true" {
		t.Errorf("a call of the eighth tab: %s", done)
	}
}

// evalAsync returns the result of a promise as JSON.
func evalAsync(p *page, expression string) string {
	p.t.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return string(out)
}

// TestFormReportsInvalidField checks that a form is built from the schema of a
// command, that an invalid value is reported at its field, and that a submitted
// command is executed.
func TestFormReportsInvalidField(t *testing.T) {
	tab := browser(t)
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 3})
	c.Push("cart")
	p := open(t, tab)
	node := c.Node(0).API()
	p.run("open", chromedp.Navigate(node+"/console/entities/cart/c%2F1"))
	p.await("the form has the fields of add", `document.querySelector("#field-sku") && document.querySelector("#field-quantity")`)
	p.run("a text where a number belongs",
		chromedp.SendKeys(chromedp.CSS("#field-sku"), "apple"), chromedp.SendKeys(chromedp.CSS("#field-price"), "30"), chromedp.SendKeys(chromedp.CSS("#field-quantity"), "many"+kb.Enter))
	p.await("the field is named", `document.querySelector("[data-field=quantity]").classList.contains("wrong")`)
	p.shot("form")
	p.run("a number", chromedp.Evaluate[chromedp.Void](`document.querySelector("#field-quantity").select()`), chromedp.SendKeys(chromedp.CSS("#field-quantity"), "2"+kb.Enter))
	p.await("the command is done, its event is shown and the state, too",
		`document.querySelector(".answer.good") && document.querySelector("table.events tbody tr") && document.querySelector("[data-state='1']")?.textContent.includes("apple")`)
	p.shot("entity")
	p.clean(node)
	// One tab of a browser follows the stream for all of them.
	one, two := open(t, p.ctx), open(t, p.ctx)
	one.run("open", chromedp.Navigate(node+"/console/logs/cart"))
	one.await("it follows", `document.querySelector(".empty")`)
	for deadline := time.Now().Add(testkit.Patience); evalAsync(one, `navigator.locks.query().then((q) => q.held.some((l) => l.name === "hostd follow"))`) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no tab follows")
		}
	}
	two.run("open", chromedp.Navigate(node+"/console/logs/cart"))
	two.await("it says that another one does", `document.querySelector(".warning button")`)
	two.run("take it", chromedp.Click(chromedp.CSS(".warning button")))
	two.await("it follows", `!document.querySelector(".warning")`)
	one.await("the first one says that another one does", `document.querySelector(".warning button")`)
	if got := state(t, node, &entityv1.GetStateRequest{EntityType: "cart", EntityId: "c/1"}); !strings.Contains(got, `"apple"`) {
		t.Errorf("%s", got)
	}
}

// history is the number of events in TestLongHistory: enough for several pages.
const history = 3_000

// TestDeadLetterIsRetried checks that the page lists a dead letter and
// redelivers it.
func TestDeadLetterIsRetried(t *testing.T) {
	tab := browser(t)
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 3, Flags: []string{"--admin", "full"}})
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	if _, err := cl.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	send := func(entityType, id, name, data string) {
		if _, err := cl.Send(t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: name, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	send("source", "s", "to", `{"type":"sink","id":"x","command":"refuse"}`)
	p := open(t, tab)
	node := c.Node(0).API()
	p.run("open", chromedp.Navigate(node+"/console/letters"))
	p.await("the letter is listed, and why it was refused", `document.querySelector("[data-letter]")?.textContent.includes("closed")`)
	const retry = `//article//button[text()="Retry"]`
	p.run("retry", chromedp.Click(chromedp.Search(retry)))
	p.await("it is refused again, and the page says why", `document.querySelector("[data-letter] .fault")?.textContent.includes("closed")`)
	send("sink", "x", "open", "")
	p.run("retry", chromedp.Click(chromedp.Search(retry)))
	p.await("it is delivered", `!document.querySelector("[data-letter]")`)
	p.clean(node)
}

// TestRolloutIsPromoted checks that the page shows a rollout and the load of
// its type, and that its buttons change the rollout.
func TestRolloutIsPromoted(t *testing.T) {
	tab := browser(t)
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 3, Flags: []string{"--admin", "full"}})
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	older, err := cl.Upload(t.Context(), guest.Module{Good: "good", Bad: "bad"}.Build(), true)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := cl.Upload(t.Context(), guest.Module{Good: "good", Bad: "bad", Frames: []byte("newer")}.Build(), false)
	if err != nil {
		t.Fatal(err)
	}
	part := &modulev1.RolloutPlan{Share: 500, Steps: []uint32{2500, 10_000}, Pause: durationpb.New(time.Hour)}
	if _, err := client.ActivateModule(t.Context(), cl, &modulev1.ActivateModuleRequest{EntityType: "good", Digest: newer.Digest, Rollout: part}); err != nil {
		t.Fatal(err)
	}
	p := open(t, tab)
	node := c.Node(0).API()
	p.run("open", chromedp.Navigate(node+"/console/modules/good"))
	p.await("the part is shown", `document.querySelector("[data-rollout=STATE_RUNNING]")?.textContent.includes("5 %")`)
	const offered = `[...document.querySelectorAll("button")].some((b) => b.textContent === "Activate for good")`
	p.await("the module serves a part, and is not offered meanwhile", `document.querySelector("[data-part=KIND_ROLLOUT]")?.textContent.includes("good: 5 %, running") && !`+offered)
	p.shot("rollout")
	order := func(label string) {
		t.Helper()
		p.run(label, chromedp.Click(chromedp.Search(`//section[@aria-label="Rollout"]//button[text()="`+label+`"]`)))
		p.await("it asks first, and says the line that does the same", `document.querySelector("dialog code")?.textContent.includes("module rollout good --`+strings.ToLower(label)+`")`)
		p.run("yes", chromedp.Click(chromedp.Search(`//dialog//button[text()="`+label+`"]`)))
	}
	order("Pause")
	p.await("it waits", `document.querySelector("[data-rollout=STATE_PAUSED]")`)
	order("Resume")
	p.await("it goes on", `document.querySelector("[data-rollout=STATE_RUNNING]")`)
	order("Promote")
	p.await("one module serves all", `!document.querySelector("[data-rollout]") && !document.querySelector("dialog")`)
	if _, err := client.Rollout(t.Context(), cl, "good"); !client.IsNotFound(err) {
		t.Errorf("the rollout: %v", err)
	}
	part.Steps, part.Pause = nil, nil
	if _, err := client.ActivateModule(t.Context(), cl, &modulev1.ActivateModuleRequest{EntityType: "good", Digest: older.Digest, Rollout: part}); err != nil {
		t.Fatal(err)
	}
	p.await("the next one is shown", `document.querySelector("[data-rollout=STATE_RUNNING]")`)
	order("Abort")
	p.await("it is said to be aborted", `document.querySelector("[data-aborted]")?.textContent.includes("was aborted")`)
	p.await("no module serves a part, and the other one is offered", `!document.querySelector("[data-part]") && `+offered)
	p.run("the load", chromedp.Navigate(node+"/console/load"))
	p.await("nodes have measured", `document.querySelector("[data-load=n1] polyline")`)
	for deadline := time.Now().Add(testkit.Patience); !eval[bool](p, `document.querySelector("[data-type=good] [data-commands=true]") !== null`); {
		if time.Now().After(deadline) {
			t.Fatalf("no command of the type is counted; the page says:\n%s", eval[string](p, "document.body.innerText"))
		}
		if _, err := cl.Send(t.Context(), client.Command{EntityType: "good", EntityID: "e", Name: "do"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.shot("load")
	p.run("the events", chromedp.Navigate(node+"/console/tail/good"))
	p.await("it has begun at the newest", `document.querySelector("[data-begun=true]")`)
	if _, err := cl.Send(t.Context(), client.Command{EntityType: "good", EntityID: "later", Name: "do"}); err != nil {
		t.Fatal(err)
	}
	p.await("the event that came is shown, and none of before", `document.querySelector("[data-event=later]") && !document.querySelector("[data-event=e]")`)
	p.shot("tail")
	// The guest writes more lines than a page shows in a second.
	var senders sync.WaitGroup
	sending, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range 32 {
		senders.Go(func() {
			for n := 0; sending.Err() == nil; n++ {
				_, err := cl.Send(sending, client.Command{EntityType: "good", EntityID: fmt.Sprintf("many%d-%d", w, n%10), Name: "do"})
				if err != nil && sending.Err() == nil {
					t.Errorf("a command while the page follows: %v", err)
					return
				}
			}
		})
	}
	p.await("it says that it shows no more of a second", `document.querySelector("[data-skips]")`)
	stop()
	senders.Wait()
	for n := 0; !eval[bool](p, `!!document.querySelector("[data-event^=calm]") && !document.querySelector("[data-skips]")`); n++ {
		if n == 300 {
			t.Fatalf("it does not go on; the page says:\n%s", eval[string](p, "document.body.innerText"))
		}
		if _, err := cl.Send(t.Context(), client.Command{EntityType: "good", EntityID: fmt.Sprintf("calm%d", n), Name: "do"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.clean(node)
}

// TestLinkSignsIn checks that the page asks for a token, and that a link with a
// token signs in and the token does not stay in the address.
func TestLinkSignsIn(t *testing.T) {
	tab := browser(t)
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "tokens"), filepath.Join(dir, "token")
	n := testkit.NewNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", file}})
	if out, code := n.Run("token", "create", "ann", "--file", file, "--out", secret); code != 0 {
		t.Fatal(out)
	}
	n.Start()
	text, err := os.ReadFile(secret)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	p := open(t, tab)
	node := n.API()
	p.run("open", chromedp.Navigate(node+"/console/"))
	p.await("the page asks for a token", `document.querySelector("input[type=password]")`)
	p.run("the link", chromedp.Navigate(node+"/console/entities#token="+token), chromedp.Reload())
	p.await("the page is signed in", `document.querySelector("header.top .badge.good")`)
	if at := eval[string](p, "location.href"); strings.Contains(at, token) {
		t.Errorf("the address keeps the token: %s", at)
	}
}

// TestButtonsFollowPermissions checks that a button is disabled, with the
// reason, exactly if the caller lacks the permission.
func TestButtonsFollowPermissions(t *testing.T) {
	tab := browser(t)
	dir := t.TempDir()
	token, file := map[string]string{}, map[string]string{}
	for _, name := range []string{"boss", "eve"} {
		token[name] = authn.NewToken()
		line, err := authn.TokenLine(name, token[name], time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		file[name] = filepath.Join(dir, name)
		if err := os.WriteFile(file[name], []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := testkit.NewNode(t, testkit.NodeOptions{Token: token["boss"], Flags: []string{"--auth", "required", "--admin", "full", "--token-file", file["eve"], "--auth-bootstrap-file", file["boss"]}})
	n.Start()
	boss := n.Client(client.Options{Timeout: testkit.Patience})
	n.Until("eve is a viewer", func() error {
		_, err := boss.PutRoleBinding(t.Context(), "token:eve", "viewer")
		return err
	})
	p := open(t, tab)
	node := n.API()
	drain := `[...document.querySelectorAll("[data-node] footer button")].find((b) => b.textContent === "Drain")`
	p.run("eve's link", chromedp.Navigate(node+"/console/#token="+token["eve"]), chromedp.Reload())
	p.await("the button is disabled, and says why", `(() => { const b = `+drain+`; return b && b.disabled && b.title.includes("admin"); })()`)
	p.run("sign out, and the link of the admin", chromedp.Evaluate[chromedp.Void](`sessionStorage.clear()`), chromedp.Navigate(node+"/console/#token="+token["boss"]), chromedp.Reload())
	asked := `fetch("/hostd.cluster.v1.ClusterService/CheckAccess", {method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("hostd-token")}, body: JSON.stringify({verb: "admin"})}).then((r) => r.json()).then((m) => String(m.allowed))`
	p.await("the button is there", drain+` !== undefined`)
	if may := evalAsync(p, asked); !strings.Contains(may, "true") {
		t.Fatalf("the admin may not: %s", may)
	}
	p.await("the button is enabled", `!`+drain+`.disabled`)
}

// scheme sets the color scheme of the page, light or dark.
func scheme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		return err
	})
}

// TestPagesAreAccessible checks that each view works with the keyboard, is
// accessible to screen readers, and fits a small screen and the dark color
// scheme.
func TestPagesAreAccessible(t *testing.T) {
	tab := browser(t)
	axe, err := os.ReadFile("../../../host/console/web/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skip("needs axe-core: npm ci in host/console/web")
	}
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Shards: 16, Flags: []string{"--admin", "full"}})
	c.Push("cart")
	cl := c.Client(client.Options{})
	if _, err := cl.Send(t.Context(), client.Command{EntityType: "cart", EntityID: "a", Name: "add", Data: []byte(`{"sku":"pear","price":45,"quantity":1}`)}); err != nil {
		t.Fatal(err)
	}
	p := open(t, tab)
	node := c.Node(0).API()
	for _, view := range []struct{ path, shown string }{
		{"", "[data-node]"}, {"entities", "td.id a"}, {"entities/cart/a", "[data-state='1']"}, {"load", "[data-type=cart]"}, {"hot", ".panel .quiet"}, {"timers", "[data-timer=abandon]"}, {"modules/cart", "[aria-label='Table of changes'] td"}, {"letters", ".empty"}, {"tail", "[data-begun=true]"}, {"logs", ".empty"},
	} {
		for _, dark := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				p.run("screen", chromedp.EmulateViewport(width, 900), scheme(dark))
				p.run("open", chromedp.Navigate(node+"/console/"+view.path))
				p.await("the view is there", fmt.Sprintf("document.querySelector(%q)", view.shown))
				name := fmt.Sprintf("%s %s %d", view.path, dark, width)
				p.shot(strings.NewReplacer("/", "-", " ", "-").Replace("view-" + name))
				if wide := eval[int](p, "document.documentElement.scrollWidth"); wide > int(width) {
					t.Errorf("%s: the page is %d wide", name, wide)
				}
				p.run("axe", chromedp.Evaluate[chromedp.Void](string(axe)))
				found := evalAsync(p, `axe.run().then((r) => r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; ")))`)
				if found != "[]" {
					t.Errorf("%s: %s", name, found)
				}
			}
		}
	}
	// Use only the keyboard, from the top of the first page to an entity.
	p.run("open", chromedp.Navigate(node+"/console/"))
	p.await("the view is there", "document.querySelector('[data-node]')")
	press := func(what, until string) {
		t.Helper()
		for range 60 {
			p.run("tab", chromedp.KeyEvent(kb.Tab))
			if eval[bool](p, "document.activeElement."+until) {
				p.run("enter", chromedp.KeyEvent(kb.Enter))
				return
			}
		}
		t.Fatalf("the keyboard does not come to %s", what)
	}
	press("the entities", `textContent === "Entities"`)
	p.await("the list is there", `document.querySelector("td.id a")`)
	press("the entity", `matches("td.id a")`)
	p.await("the entity is there", `document.querySelector("[data-state='1']")`)
	p.clean(node)
}
