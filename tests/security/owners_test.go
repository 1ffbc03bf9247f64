package security

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// serving returns a module with the types, which does nothing. Each version has
// a different digest.
func serving(version string, types ...string) []byte {
	var list []string
	for _, t := range types {
		list = append(list, fmt.Sprintf(`{"name":%q,"kind":"event-sourced","encoding":"bytes"}`, t))
	}
	return guest.Module{Manifest: fmt.Sprintf(`{"abi":1,"name":"m","version":%q,"entityTypes":[%s]}`, version, strings.Join(list, ","))}.Build()
}

// refusedFor checks that a call was denied with a reason.
func refusedFor(t *testing.T, what, reason string, err error) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Code != connect.CodePermissionDenied || e.Reason != reason {
		t.Errorf("%s: %v, want it denied with %s", what, err, reason)
	}
}

// TestTeamsDeployOnlyTheirTypes checks that each team can deploy its own types
// but not the types of the other team, through any node, also after all nodes
// were restarted.
func TestTeamsDeployOnlyTheirTypes(t *testing.T) {
	t.Parallel()
	token, file := tokens(t, "root", "ann", "bo")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	c.Start()
	ctx := t.Context()
	as := func(node int, name string) *client.Client {
		return c.Node(node).Client(client.Options{Token: token[name], Timeout: testkit.Patience})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	push := func(node int, name string, wasm []byte) (string, error) {
		up, err := as(node, name).Upload(ctx, wasm, true)
		return up.Digest, err
	}
	root := as(0, "root")
	_, err := push(0, "bo", serving("1", "old")) // allowed, because there is no admin yet
	must(err)
	bind(t, root, "token:root", "admin")
	bind(t, root, "token:ann", "deployer", "operator")
	bind(t, root, "token:bo", "deployer", "operator")

	type team struct {
		name, typ     string
		first, second string // digests
	}
	teams := []*team{{name: "ann", typ: "a-order"}, {name: "bo", typ: "b-stock"}}
	for i, own := range teams {
		own.first, err = push(i, own.name, serving("1", own.typ))
		must(err)
		own.second, err = push(i+1, own.name, serving("2", own.typ))
		must(err)
	}
	look := func() {
		t.Helper()
		for i := range c.Nodes() {
			for k, own := range teams {
				other := teams[1-k].name
				cl := as(i, other)
				attempts := map[string]error{"set the owner": cl.SetTypeOwner(ctx, own.typ, "token:"+other)}
				_, attempts["push"] = push(i, other, serving("3", own.typ))
				_, attempts["activate"] = cl.Activate(ctx, own.typ, own.first)
				_, attempts["limit"] = cl.ActivateLimited(ctx, own.typ, own.second, &modulev1.Limits{MaxEvents: 1})
				_, attempts["roll back"] = cl.Rollback(ctx, own.typ)
				_, attempts["suspend"] = cl.PutSetting(ctx, "entity."+own.typ+".suspended", "true")
				_, attempts["resume"] = cl.PutSetting(ctx, "entity."+own.typ+".suspended", "")
				_, attempts["cut events"] = cl.PutSetting(ctx, "entity."+own.typ+".retain-events", "1")
				for what, err := range attempts {
					refusedFor(t, fmt.Sprintf("node %d: %s would %s %s", i, other, what, own.typ), "NOT_OWNER", err)
				}
				if owner, err := cl.TypeOwner(ctx, own.typ); err != nil || owner != "token:"+own.name {
					t.Errorf("node %d: %s belongs to %q, %v", i, own.typ, owner, err)
				}
				me := as(i, own.name)
				for _, value := range []string{"true", ""} {
					_, err := me.PutSetting(ctx, "entity."+own.typ+".suspended", value)
					must(err)
				}
				_, err := me.Rollback(ctx, own.typ)
				must(err)
				_, err = me.ActivateLimited(ctx, own.typ, own.second, &modulev1.Limits{MaxEvents: 100})
				must(err)
			}
		}
		_, err := as(2, "root").Activate(ctx, "a-order", teams[0].first) // an admin may activate it
		must(err)
		_, err = as(2, "ann").Activate(ctx, "a-order", teams[0].second)
		must(err)
	}
	look()

	// The next caller who deploys a type without an owner becomes its owner. After
	// an admin gives it to a group, only the group can deploy it.
	_, err = push(1, "ann", serving("2", "old"))
	must(err)
	_, err = push(2, "bo", serving("3", "old"))
	refusedFor(t, "bo would push what ann took", "NOT_OWNER", err)
	refusedFor(t, "ann would put a type among those of a team", "NOT_OWNER", as(0, "ann").SetTypeOwner(ctx, "old", "group:team-b"))
	must(root.SetTypeOwner(ctx, "old", "group:team-b"))
	_, err = push(1, "ann", serving("3", "old"))
	refusedFor(t, "ann would push what she gave away", "NOT_OWNER", err)
	must(root.SetTypeOwner(ctx, "old", ""))

	c.KillAll()
	c.Start()
	look()

	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(token["ann"]), 0o600); err != nil {
		t.Fatal(err)
	}
	hostd := func(args ...string) (string, int) {
		return c.Node(0).Run(append(args, "--addr", c.Node(0).API(), "--token-file", secret)...)
	}
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"type", "owner", "a-order"}, "token:ann\n", 0}, {[]string{"type", "owner", "old"}, "nobody\n", 0},
		{[]string{"type", "owner", "b-stock", "token:ann"}, "belongs to an owner other than token \"ann\"", 1},
		{[]string{"type", "owner", "a-order", "ann"}, "token:NAME", 2}, {[]string{"type", "owner", "a-order", "token:bo", "--nobody"}, "not both", 2},
		{[]string{"type", "owner", "a-order", "group:team-a"}, "assign it to a different subject", 1}, {[]string{"module", "ls"}, "a-order=token:ann", 0},
	} {
		if text, code := hostd(tt.args...); code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("hostd %q: %d, %s", tt.args, code, text)
		}
	}
}

// TestActivationNeedsRightsForAllTypes checks that a caller who may deploy
// only one type of a module can activate none of its types, by an upload, an
// activation or a rollback.
func TestActivationNeedsRightsForAllTypes(t *testing.T) {
	t.Parallel()
	token, file := tokens(t, "root", "ann")
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	ctx := t.Context()
	root, ann := n.Client(client.Options{Token: token["root"], Timeout: testkit.Patience}), n.Client(client.Options{Token: token["ann"], Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	deploys := func(types ...string) {
		t.Helper()
		deploy, read := &clusterv1.RoleRule{Effect: "allow", Verbs: []string{"deploy"}, Types: types}, &clusterv1.RoleRule{Effect: "allow", Verbs: []string{"read"}}
		if _, err := root.PutRole(ctx, "deploys", deploy, read); err != nil {
			t.Fatal(err)
		}
	}
	deploys("one")
	bind(t, root, "token:ann", "deploys")
	single, both := serving("1", "one"), serving("1", "one", "two")
	_, err := ann.Upload(ctx, both, true)
	refusedFor(t, "upload", "ROLE_REQUIRED", err)
	up, err := ann.Upload(ctx, both, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ann.Activate(ctx, "one", up.Digest)
	refusedFor(t, "activate", "ROLE_REQUIRED", err)
	if _, err := root.Activate(ctx, "one", up.Digest); err != nil {
		t.Fatal(err)
	}
	if err := root.SetTypeOwner(ctx, "one", "token:ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.Upload(ctx, single, true); err != nil {
		t.Fatal(err)
	}
	_, err = ann.Rollback(ctx, "one")
	refusedFor(t, "roll back", "ROLE_REQUIRED", err)
	// A module may be removed by a caller who may deploy all its types and owns
	// it.
	store := func(types ...string) string {
		t.Helper()
		stored, err := root.Upload(ctx, serving("9", types...), false)
		if err != nil {
			t.Fatal(err)
		}
		return stored.Digest
	}
	if _, err := root.Upload(ctx, serving("1", "hers"), true); err != nil {
		t.Fatal(err)
	}
	pair, others := store("one", "two"), store("hers")
	refusedFor(t, "remove a module of another type too", "ROLE_REQUIRED", client.RemoveModule(ctx, ann, pair))
	refusedFor(t, "remove a module of another type", "ROLE_REQUIRED", client.RemoveModule(ctx, ann, others))
	deploys("one", "two", "hers")
	refusedFor(t, "remove a module of another's type", "NOT_OWNER", client.RemoveModule(ctx, ann, others))
	for _, digest := range []string{pair, others} {
		if _, err := root.Module(ctx, digest); err != nil {
			t.Errorf("a module whose removal was refused: %v", err)
		}
	}
	if err := errors.Join(client.RemoveModule(ctx, ann, pair), client.RemoveModule(ctx, root, others)); err != nil {
		t.Errorf("removed by who may: %v", err)
	}
	deploys("one", "two")
	if _, err := ann.Rollback(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := ann.Upload(ctx, both, true); err != nil {
		t.Error(err)
	}
	if owner, err := ann.TypeOwner(ctx, "two"); err != nil || owner != "token:ann" {
		t.Errorf("two belongs to %q, %v", owner, err)
	}
}

// signedToken returns a token in which the issuer names the groups of a caller.
func signedToken(t *testing.T, key ed25519.PrivateKey, name string, groups ...string) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": "EdDSA", "kid": "k"}) + "." + part(map[string]any{
		"iss": "https://issuer.example", "aud": "hostd", "sub": name, "groups": groups, "exp": time.Now().Add(time.Hour).Unix(),
	})
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// TestGroupsOwnTypes checks that a member of a team can give a type to the
// team, and that only the members of the team can deploy it then.
func TestGroupsOwnTypes(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys.json")
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","use":"sig","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	if err := os.WriteFile(keys, []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--oidc-issuer", "https://issuer.example", "--oidc-audience", "hostd", "--jwt-keys-file", keys, "--admin", "full"}})
	as := func(name string, groups ...string) *client.Client {
		return n.Client(client.Options{Token: signedToken(t, key, name, groups...), Timeout: testkit.Patience})
	}
	root, ann, amy, bo := as("root"), as("ann", "team-a"), as("amy", "others", "team-a"), as("bo", "team-b")
	bind(t, root, "jwt:root", "admin")
	bind(t, root, "group:team-a", "deployer")
	bind(t, root, "group:team-b", "deployer")
	push := func(as *client.Client, version string) error {
		_, err := as.Upload(t.Context(), serving(version, "order"), true)
		return err
	}
	if err := push(ann, "1"); err != nil {
		t.Fatal(err)
	}
	refusedFor(t, "before it is the team's", "NOT_OWNER", push(amy, "2"))
	if err := ann.SetTypeOwner(t.Context(), "order", "group:team-a"); err != nil {
		t.Fatal(err)
	}
	for who, as := range map[string]*client.Client{"ann": ann, "amy": amy} {
		if err := push(as, who); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	refusedFor(t, "another team", "NOT_OWNER", push(bo, "3"))
	refusedFor(t, "another team gives itself the type", "NOT_OWNER", bo.SetTypeOwner(t.Context(), "order", "group:team-b"))
}
