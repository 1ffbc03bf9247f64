package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/api/client"
)

type shardRow struct {
	ShardID uint32   `json:"shardId"`
	Voters  []string `json:"voters"`
	Bytes   uint64   `json:"bytes"`
	Note    string   `json:"note"`
}

type shardRows struct {
	Shards []shardRow `json:"shards"`
}

// printed runs a command that prints v, and returns its outputs.
func printed(v any, args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	std := Stdio{Out: &stdout, Err: &stderr}
	var o *Output
	c := Leaf("show", "Show it", 0, 0, func(context.Context, *cobra.Command, []string) error {
		if err, failed := v.(error); failed {
			return err
		}
		return o.Print(v, func(w io.Writer) { Table(w, "SHARD\tBYTES", func(row func(...any)) { row(1, 2) }) })
	})
	o = AddOutput(c, std)
	code = Run(context.Background(), Group("test", "Test", c), append([]string{"show"}, args...), std)
	return stdout.String(), stderr.String(), code
}

func TestFormatsHaveTheSameMembers(t *testing.T) {
	v := shardRows{[]shardRow{{7, []string{"n1", "n2"}, 18446744073709551615, "true"}, {8, []string{}, 0, "a\x1b\u202e\U000e0001\nb: c"}}}
	for _, tt := range []struct{ args, want string }{
		{"", "SHARD  BYTES\n1      2\n"},
		{"--no-headers", "1  2\n"},
		{"-o jsonl", `{"shardId":7,"voters":["n1","n2"],"bytes":18446744073709551615,"note":"true"}` + "\n" +
			`{"shardId":8,"voters":[],"bytes":0,"note":"a\u001b\u202e\udb40\udc01\nb: c"}` + "\n"},
		{"-o name", "7\n8\n"},
		{"--jq .shards[].bytes", "18446744073709551615\n0\n"},
		{"--jq .shards[0].note", "true\n"},
		{"-o json --jq .shards|map(.voters)", `[["n1","n2"],[]]` + "\n"},
		{"--jq empty", ""},
		{"-o yaml", "shards:\n  - shardId: 7\n    voters:\n      - n1\n      - n2\n    bytes: 18446744073709551615\n    note: \"true\"\n" +
			"  - shardId: 8\n    voters: []\n    bytes: 0\n    note: \"a\\e\\u202e\\U000E0001\\nb: c\"\n"},
	} {
		out, errs, code := printed(v, strings.Fields(tt.args)...)
		if code != ExitDone || out != tt.want {
			t.Errorf("%s: code %d, %s\ngot\n%s\nwant\n%s", tt.args, code, errs, out, tt.want)
		}
	}
	out, _, _ := printed(v, "-o", "yaml")
	var back struct {
		Shards []struct {
			ShardID uint32 `yaml:"shardId"`
			Bytes   uint64
			Note    string
		}
	}
	if err := yaml.Unmarshal([]byte(out), &back); err != nil || len(back.Shards) != 2 || back.Shards[0].Bytes != v.Shards[0].Bytes || back.Shards[1].Note != v.Shards[1].Note || back.Shards[0].Note != "true" {
		t.Errorf("the YAML means %+v, %v", back, err)
	}
	for _, empty := range []string{"-o jsonl", "-o name"} {
		if out, errs, code := printed(shardRows{[]shardRow{}}, strings.Fields(empty)...); out != "" || code != ExitDone {
			t.Errorf("%s of an empty list: %q %s", empty, out, errs)
		}
	}
	// Guests' texts must not move the cursor in any format.
	for _, format := range []string{"json", "jsonl", "yaml"} {
		if out, _, _ := printed(v, "-o", format); strings.ContainsAny(out, "\x1b\u202e\U000e0001") {
			t.Errorf("-o %s: %q", format, out)
		}
	}
}

func TestInvalidFormatsAreUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-o xml":            "must be table, json, jsonl, yaml or name",
		"--jq .a[":          "--jq: ",
		"--jq input":        "--jq: ",
		"--jq . -o yaml":    "omit --output yaml",
		"--jq $ENV.HOME":    "",
		"--jq undefined(1)": "--jq: function not defined",
	} {
		out, errs, code := printed(shardRows{}, strings.Fields(args)...)
		if want == "" {
			if code != ExitDone || out != "null\n" {
				t.Errorf("%s reads the environment: %q %q", args, out, errs)
			}
			continue
		}
		if code != ExitUsage && !strings.Contains(args, "input") || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%s: code %d, %q, %q", args, code, out, errs)
		}
	}
	if out, errs, code := printed([]int{1}, "-o", "name"); code != ExitFailed || out != "" || !strings.Contains(errs, "-o json") {
		t.Errorf("-o name of numbers: %d %q %q", code, out, errs)
	}
}

func TestStreamsHaveDocuments(t *testing.T) {
	var out bytes.Buffer
	o := &Output{w: &out, format: formatYAML, running: context.Background}
	for i := range 2 {
		if err := o.Line(map[string]int{"a": i}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); got != "a: 0\n---\na: 1\n" {
		t.Errorf("%q", got)
	}
}

// TestFailuresNameFieldsAndTheirExplanation checks failures for programs and for
// people.
func TestFailuresNameFieldsAndTheirExplanation(t *testing.T) {
	denied := fmt.Errorf("get: %w", &client.Error{Code: connect.CodePermissionDenied, Reason: "ROLE_REQUIRED", Message: "no rule allows it"})
	_, errs, code := printed(denied)
	if code != ExitFailed || !strings.Contains(errs, "docs/reference/errors.md#role_required") {
		t.Errorf("for people: %d %s", code, errs)
	}
	invalid := &client.Error{Code: connect.CodeInvalidArgument, Message: "the payload does not match the schema", Violations: []client.Violation{{Field: "amount", Description: "is missing"}}}
	for _, args := range []string{"-o json", "-o jsonl", "-o yaml", "--jq ."} {
		_, errs, _ := printed(error(invalid), strings.Fields(args)...)
		var got struct{ Error failure }
		if err := json.Unmarshal([]byte(errs), &got); err != nil || len(got.Error.Violations) != 1 || got.Error.Violations[0] != invalid.Violations[0] {
			t.Errorf("%s: %s, %v", args, errs, err)
		}
		_, errs, _ = printed(denied, strings.Fields(args)...)
		if err := json.Unmarshal([]byte(errs), &got); err != nil || got.Error.Doc != "docs/reference/errors.md#role_required" || got.Error.Reason != "ROLE_REQUIRED" {
			t.Errorf("%s: %s, %v", args, errs, err)
		}
	}
	if _, errs, _ := printed(errors.New("else"), "-o", "name"); errs != "hostd: else\n" {
		t.Errorf("%q", errs)
	}
}
