package security

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// tokens creates a token for each name, and a token file for nodes.
func tokens(t *testing.T, names ...string) (token map[string]string, file string) {
	t.Helper()
	token = map[string]string{}
	var lines strings.Builder
	for _, name := range names {
		token[name] = authn.NewToken()
		line, err := authn.TokenLine(name, token[name], time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&lines, line)
	}
	file = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return token, file
}

// streaming lists the streaming procedures.
var streaming = []string{"SendCommandStream", "ReadEvents", "SubscribeEvents", "UploadModuleStream", "DownloadModule", "VerifyModule", "WatchCluster", "WatchShards", "WatchStats", "WatchSettings", "TailLogs", "ProfileNode", "ProfileGuests", "ExportJournal", "ImportJournal"}

// asked makes a call with an empty message and returns the status and the error
// code; the code is empty if the procedure has begun to answer.
func asked(t *testing.T, calls *http.Client, url, procedure, token string) (status int, code string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	stream := slices.Contains(streaming, procedure[strings.LastIndexByte(procedure, '/')+1:])
	kind, body := "application/json", []byte("{}")
	if stream {
		kind, body = "application/connect+json", append([]byte{0, 0, 0, 0, 2}, body...)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+procedure, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := calls.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", procedure, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return res.StatusCode, ""
	}
	var answer struct {
		Code  string
		Error struct{ Code string }
	}
	if !stream || res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(res.Body)
		if err != nil || json.Unmarshal(text, &answer) != nil {
			t.Fatalf("%s: %d, %s, %v", procedure, res.StatusCode, text, err)
		}
		if res.StatusCode == http.StatusOK {
			answer.Code = ""
		}
		return res.StatusCode, answer.Code
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, head); err != nil {
		t.Fatalf("%s: %v", procedure, err)
	}
	if head[0]&2 == 0 {
		return res.StatusCode, "" // the flags of a message, not of the end of the stream
	}
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(res.Body, text); err != nil || json.Unmarshal(text, &answer) != nil {
		t.Fatalf("%s: %s, %v", procedure, text, err)
	}
	return res.StatusCode, answer.Error.Code
}

// TestRolesAllowTheirProcedures calls every procedure on each listener, without
// a credential and as a caller with each of the roles. Only callers whose role
// has the procedure's verb may reach it.
func TestRolesAllowTheirProcedures(t *testing.T) {
	var names []string
	for role := range roleVerbs {
		names = append(names, role)
	}
	token, file := tokens(t, names...)
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	admin := node.Client(client.Options{Token: token["admin"], Timeout: testkit.Patience})
	if _, err := admin.PutSetting(t.Context(), "a", "b"); err != nil { // so that watchers receive something
		t.Fatal(err)
	}
	bind(t, admin, "token:admin", "admin")
	for role := range roleVerbs {
		if role != "stranger" && role != "admin" {
			bind(t, admin, "token:"+role, role)
		}
	}
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport}
	judged := 0
	for _, procedure := range procedures() {
		forNodes := strings.HasPrefix(procedure, "/hostd.peer.v1.")
		verb, known := procedureVerbs[procedure]
		if known == forNodes {
			t.Errorf("%s: say in procedureVerbs what it does, or leave out what is between nodes", procedure)
			continue
		}
		for role, verbs := range roleVerbs {
			status, code := asked(t, calls, node.API(), procedure, token[role])
			may := verb == self || slices.Contains(verbs, verb)
			switch {
			case forNodes:
				if status != http.StatusNotFound {
					t.Errorf("%s, which is between nodes, answers who has the role %s with %d", procedure, role, status)
				}
			case may == (code == "permission_denied") || code == "unauthenticated":
				t.Errorf("%s, which is to %s, answers who has the role %s with %d %q", procedure, verb, role, status, code)
			default:
				judged++
			}
			if status, code := asked(t, calls, node.PeerAPI(), procedure, token[role]); !forNodes && status != http.StatusNotFound || forNodes && (code == "" && status < 300) {
				t.Errorf("%s on the peers' listener answers who has the role %s with %d %q", procedure, role, status, code)
			}
		}
		if forNodes {
			continue
		}
		// An address that repeatedly sends no credential is rate-limited.
		if status, code := asked(t, calls, node.API(), procedure, ""); code != "unauthenticated" && code != "resource_exhausted" {
			t.Errorf("%s answers who shows nothing with %d %q", procedure, status, code)
		}
	}
	if len(procedureVerbs)*len(roleVerbs) != judged && !t.Failed() {
		t.Errorf("%d answers were judged, of %d procedures and %d roles", judged, len(procedureVerbs), len(roleVerbs))
	}
}

func bind(t *testing.T, as *client.Client, subject string, roles ...string) {
	t.Helper()
	if _, err := as.PutRoleBinding(t.Context(), subject, roles...); err != nil {
		t.Fatalf("bind %s: %v", subject, err)
	}
}

// TestRolesApplyOnEveryNode checks that roles changed through one node apply
// on all nodes, to calls and to open streams, also on a node that starts later.
func TestRolesApplyOnEveryNode(t *testing.T) {
	token, file := tokens(t, "root", "ann", "stranger", "op", "dep")
	account := filepath.Join(t.TempDir(), "audit.log")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"},
		NodeFlags: map[int][]string{1: {"--audit-file", account}}})
	c.Start()
	c.Push("counter")
	root := c.Node(0).Client(client.Options{Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	if _, err := root.PutRole(t.Context(), "clerk", &clusterv1.RoleRule{
		Effect: "allow", Verbs: []string{"invoke", "read"}, Types: []string{"counter"}, IdPrefixes: []string{"${principal.name}/"},
	}); err != nil {
		t.Fatal(err)
	}
	bind(t, root, "token:ann", "clerk")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	add := func(as *client.Client, id string) error {
		_, err := as.Send(ctx, client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)})
		return err
	}
	denied := func(err error) bool { return client.CodeOf(err) == connect.CodePermissionDenied }
	ended := make(chan error, 3)
	for i, node := range c.Nodes() {
		ann := node.Client(client.Options{Token: token["ann"], Timeout: testkit.Patience})
		id := fmt.Sprintf("ann/%d", i)
		node.Until("ann has a role", func() error {
			me, err := ann.CanI(ctx, &clusterv1.CheckAccessRequest{})
			if err == nil && !slices.Contains(me.GetRoles(), "clerk") {
				err = fmt.Errorf("its roles are %v", me.GetRoles())
			}
			return err
		})
		if err := add(ann, id); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		if err := add(ann, "bo/1"); !denied(err) {
			t.Errorf("node %d: of another: %v", i, err)
		}
		if err := add(node.Client(client.Options{Token: token["stranger"], Timeout: testkit.Patience}), id); !denied(err) {
			t.Errorf("node %d: without a role: %v", i, err)
		}
		began := make(chan struct{})
		go func() {
			first := true
			for _, err := range ann.ReadEvents(ctx, client.EventRange{EntityType: "counter", EntityID: id, Follow: true}) {
				if err != nil {
					ended <- err
					return
				}
				if first {
					first = false
					close(began)
				}
			}
			ended <- nil
		}()
		<-began
	}
	if err := root.DeleteRoleBinding(ctx, "token:ann"); err != nil {
		t.Fatal(err)
	}
	for range c.Nodes() {
		if err := <-ended; !denied(err) {
			t.Errorf("a stream ended with %v", err)
		}
	}
	for i, node := range c.Nodes() {
		if err := add(node.Client(client.Options{Token: token["ann"], Timeout: testkit.Patience}), "ann/1"); !denied(err) {
			t.Errorf("node %d: %v", i, err)
		}
	}
	if err := root.DeleteRoleBinding(ctx, "token:root"); client.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the last who is admin: %v", err)
	}
	c.Restart(2)
	if err := add(c.Node(2).Client(client.Options{Token: token["ann"], Timeout: testkit.Patience}), "ann/1"); !denied(err) {
		t.Errorf("after a start: %v", err)
	}
	if err := add(c.Node(2).Client(client.Options{Timeout: testkit.Patience}), "ann/1"); err != nil {
		t.Errorf("after a start: %v", err)
	}
	oneVerbEach(t, c, root, token)
	c.Stop(1)
	text, err := os.ReadFile(account)
	if err != nil || !regexp.MustCompile(`"verb":"invoke","type":"counter","id":"bo/1",.*"code":"permission_denied","policy":[1-9]`).Match(text) {
		t.Errorf("the audit log lacks what was refused (%v): %s", err, text)
	}
}

// TestNodeWithoutAuthenticationRestoresAdmin checks that if no caller can be
// admin any more, an operator can start a node without authentication and
// assign the role.
func TestNodeWithoutAuthenticationRestoresAdmin(t *testing.T) {
	token, file := tokens(t, "lost", "found")
	asks := []string{"--auth", "required", "--token-file", file, "--admin", "full"}
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: asks})
	lost := node.Client(client.Options{Token: token["lost"], Timeout: testkit.Patience})
	bind(t, lost, "token:lost", "admin")
	found := node.Client(client.Options{Token: token["found"], Timeout: testkit.Patience})
	if _, err := found.Modules(t.Context()); client.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("without a role: %v", err)
	}
	node.Stop()
	node.SetFlags("--admin", "full")
	node.Start()
	node.Await("the log warns of a node that holds nobody to roles", func() bool {
		return strings.Contains(node.Log(), "this node does not authenticate callers")
	})
	bind(t, node.Client(client.Options{Timeout: testkit.Patience}), "token:found", "admin")
	node.Stop()
	node.SetFlags(asks...)
	node.Start()
	found = node.Client(client.Options{Token: token["found"], Timeout: testkit.Patience})
	if err := found.DeleteRoleBinding(t.Context(), "token:lost"); err != nil {
		t.Error(err)
	}
	if _, err := node.Client(client.Options{Token: token["lost"], Timeout: testkit.Patience}).Modules(t.Context()); client.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("without a role: %v", err)
	}
}
