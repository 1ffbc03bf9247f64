package meta_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

func TestDescribe(t *testing.T) {
	for _, tt := range []struct {
		command   []byte
		op, about string
		verb      string
	}{
		{meta.PutSetting("k", []byte("secret")), "put_setting", "op=put_setting key=k", "settings"},
		{meta.PutRoleBinding(access.Binding{Subject: "token:eve", Roles: []string{"a", "b"}}), "put_role_binding", "op=put_role_binding subject=token:eve roles=a,b", "security"},
		{meta.Down("n2"), "set_status", "op=set_status node_id=n2", "admin"},
		{meta.Bind("T", meta.Digest{1}, 5), "bind", "op=bind digest=01" + strings.Repeat("00", 31) + " entity_type=T", "deploy"},
		{meta.PauseTypeWrites("T", 1), "hold_type", "op=hold_type entity_type=T revision=1", ""},
		{meta.Join(meta.Member{Node: sharding.NodeID("n3")}), "join", "op=join node_id=n3", "admin"},
		{[]byte("?"), "", "", ""},
	} {
		op, about := meta.Describe(tt.command)
		if op != tt.op || about != tt.about || meta.VerbOf(op) != tt.verb {
			t.Errorf("%.80s: %q, %q, %q", tt.command, op, about, meta.VerbOf(op))
		}
	}
}
