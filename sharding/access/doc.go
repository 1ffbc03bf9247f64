// Package access defines roles: verbs, rules, roles, role bindings and their
// limits. The metadata shard stores them and every replica must accept or
// reject them identically, so the package is pure and uses no tables that
// differ between Go releases. It does not make access decisions.
package access
