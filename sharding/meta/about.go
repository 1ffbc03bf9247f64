package meta

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Describe returns the operation of a command and a description of its subject
// for display: NAME=VALUE pairs separated by spaces. Setting values and token
// hashes are left out. If body is not a command, the operation is empty.
func Describe(body []byte) (op, about string) {
	c, err := decode(body)
	if err != nil {
		return "", ""
	}
	var out []string
	add := func(name string, value any) {
		if text := fmt.Sprint(value); text != "" {
			out = append(out, name+"="+text)
		}
	}
	add("op", c.Op)
	if c.Digest != nil {
		add("digest", hex.EncodeToString(c.Digest[:]))
	}
	if c.Module != nil {
		add("digest", hex.EncodeToString(c.Module.Digest[:]))
	}
	add("entity_type", c.EntityType)
	if c.Revision != 0 {
		add("revision", c.Revision)
	}
	for _, m := range []*Member{c.Member, c.BootstrapNode} {
		if m != nil {
			add("node_id", m.Node)
		}
	}
	if c.Status != nil {
		add("node_id", c.Status.Node)
	}
	if c.Setting != nil {
		add("key", c.Setting.Key)
	}
	if c.Raise != nil {
		add("level", c.Raise.Level)
	}
	if c.Recover != nil {
		add("shard_id", c.Recover.Shard)
	}
	if c.Policy != nil {
		add("replication", c.Policy.Replication)
	}
	if c.Rollouts != nil {
		for _, p := range c.Rollouts.Put {
			add("entity_type", p.EntityType)
		}
	}
	if c.Owner != nil {
		add("owner", c.Owner.Is)
	}
	if c.Role != nil {
		add("role_name", c.Role.Name)
	}
	if c.RoleDelete != nil {
		add("role_name", c.RoleDelete.Name)
	}
	if c.RoleBinding != nil {
		add("subject", c.RoleBinding.Subject)
		add("roles", strings.Join(c.RoleBinding.Roles, ","))
	}
	if c.RoleBindingDelete != nil {
		add("subject", c.RoleBindingDelete.Subject)
	}
	if c.TokenPut != nil {
		add("token_name", c.TokenPut.Token.Name)
		add("roles", strings.Join(c.TokenPut.Roles, ","))
	}
	if c.TokenDelete != nil {
		add("token_name", c.TokenDelete.Name)
	}
	return c.Op, strings.Join(out, " ")
}

// verbs maps operations to the verb of hostd.auth.v1 that a caller needs for
// them. Commands that nodes issue on their own have the verb admin.
var verbs = map[string]string{
	opPutModule: "deploy", opBind: "deploy", opRollback: "deploy", opRemoveModule: "deploy", opPutVerified: "deploy", opPutRollouts: "deploy", opPutTypeOwner: "deploy",
	opPutSetting: "settings",
	opPutRole:    "security", opDeleteRole: "security", opPutRoleBinding: "security", opDeleteRoleBinding: "security", opPutToken: "security", opDeleteToken: "security",
}

// VerbOf returns the verb of an operation. It is empty for operations that
// change nothing permanently.
func VerbOf(op string) string {
	switch op {
	case "", opPauseTypeWrites, opResumeTypeWrites:
		return ""
	}
	if v := verbs[op]; v != "" {
		return v
	}
	return "admin"
}
