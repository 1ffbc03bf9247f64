package forward

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// authorizeFunc authorizes requests.
type authorizeFunc func(*request.Request) error

func (f authorizeFunc) AuthorizeForwarded(q *request.Request) error { return f(q) }

// principals is cluster metadata that says whether nodes receive the principals
// of requests.
type principals bool

func (p principals) ClusterVersion() sharding.ClusterVersion {
	if p {
		return sharding.VersionPrincipal
	}
	return sharding.VersionPrincipal - 1
}

// The executing node receives the principals of the requests. It does not
// run a request that it rejects, but runs the other requests of the same
// message.
func TestExecutingNodeAuthorizesRequests(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	var mu sync.Mutex
	heard := map[string]string{}
	n2 := newSite(t, "n2", w, newLeads("n2"), func(o *ServerOptions) {
		o.Roles = authorizeFunc(func(q *request.Request) error {
			mu.Lock()
			defer mu.Unlock()
			heard[q.Entity.ID] = principal.HeaderOf(principal.Said{Caller: q.Principal, Roles: q.Roles})
			if q.Principal == nil || q.Principal.Name != "ann" {
				return &request.DeniedError{Verb: "invoke", EntityType: q.Entity.Type, Message: "no"}
			}
			return nil
		})
	})
	for _, says := range []bool{true, false} {
		c := newTestClient(t, newNetwork(t, n2), func(o *Options) { o.Metadata = principals(says) })
		var reqs []*request.Request
		ann, bo := caller(principal.Token, "ann"), caller(principal.JWT, "bo", "staff")
		for i, p := range []*principal.Principal{ann, bo, nil, ann} {
			q := command(fmt.Sprint(says, i), "add", amount(1))
			q.Principal, q.Roles = p, uint64(i)
			reqs = append(reqs, q)
		}
		run(t, toNode{c, "n2"}, reqs...)
		for i, want := range []string{`{"kind":"token","name":"ann"}`, `{"kind":"jwt","name":"bo","groups":["staff"],"roles":1}`, "", `{"kind":"token","name":"ann","roles":3}`} {
			if !says {
				want = ""
			}
			if got := heard[fmt.Sprint(says, i)]; got != want {
				t.Errorf("%v, request %d is of %s, want %s", says, i, got, want)
			}
			err, no := reqs[i].Result.Err, says && i > 0 && i < 3 || !says
			if no != (fmt.Sprint(err) == "no") || !no && err != nil {
				t.Errorf("%v, request %d: %v", says, i, err)
			}
			if denied, _ := errors.AsType[*request.DeniedError](err); no && (denied == nil || denied.Verb != "invoke" || denied.EntityType != rpctest.Counter) {
				t.Errorf("%v, request %d: %#v", says, i, err)
			}
			if no == (w.Total(fmt.Sprint(says, i)) == 1) {
				t.Errorf("%v, request %d: total %d", says, i, w.Total(fmt.Sprint(says, i)))
			}
		}
	}
}
