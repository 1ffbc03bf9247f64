// Package access is the vocabulary of who may do what: verbs, rules, roles and
// the bindings of roles to subjects, with the bounds of each. The metadata
// shard keeps them, and every replica must judge them alike: it is pure, and
// asks nothing of tables that differ between releases of Go. It decides
// nothing.
package access
