package abi

import (
	"encoding/hex"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestWorkedExample compares every byte of the example in EXAMPLE.md with the
// code, and the sizes in its text with the bytes.
func TestWorkedExample(t *testing.T) {
	text, err := os.ReadFile("EXAMPLE.md")
	if err != nil {
		t.Fatal(err)
	}
	const now = 1_700_000_000_000_000_000
	added := []byte(`{"amount":1}`)

	handle := AppendSequence(nil, 7)
	handle = AppendName(handle, "add")
	handle = AppendPayload(handle, added)
	handle = AppendCommandID(handle, "c-1")
	handle = AppendNow(handle, now)
	handle = AppendSeed(handle, 42)
	handle = AppendSource(handle, Source{Kind: SourceClient})
	handle = AppendFrame(handle, 250, "new")

	output := AppendEvent(nil, "added", added)
	output = AppendTag(output, "small")
	output = AppendReply(output, []byte(`{"total":42}`))

	load := AppendEntityID(nil, "c1")
	load = AppendSnapshot(load, []byte(`{"total":41}`))
	load = AppendSequence(load, 7)

	apply := AppendInputEvent(nil, 8, now, "added", added)
	reject := AppendReject(nil, "invalid_amount", "must be > 0")

	pay := AppendEvent(nil, "withdrawn", []byte(`{"amount":3}`))
	pay = AppendSend(pay, Send{
		EntityType: []byte("account"), EntityID: []byte("b2"), Command: []byte("deposit"), Payload: []byte(`{"amount":3}`),
		WantsAnswer: true, OnReply: []byte("paid"), OnReject: []byte("unpaid"),
	})
	source := AppendSource(nil, Source{Kind: SourceEntity, EntityType: []byte("account"), EntityID: []byte("a1")})

	blocks := strings.Split(string(text), "```")
	for i, want := range [][]byte{handle, output, load, apply, reject, pay, source} {
		if got := blockBytes(t, blocks[2*i+1]); got != hex.EncodeToString(want) {
			t.Errorf("block %d\nis     %s\nshould %x", i+1, got, want)
		}
	}
	for i, size := range map[int]string{
		0: "hostd_handle(entity, " + decimal(len(handle)) + ")", 2: "<< 32 | " + decimal(len(output)) + "`",
		4: "hostd_load(0, entity, " + decimal(len(load)) + ")", 6: "hostd_apply(entity, " + decimal(len(apply)) + ")",
	} {
		if !strings.Contains(blocks[i], size) {
			t.Errorf("the text before block %d does not say %q", i/2+1, size)
		}
	}
	for _, frames := range [][]byte{output, reject, pay} {
		limits := DefaultLimits()
		if err := ParseOutput(new(Output), frames, HandleEvents, &limits); err != nil {
			t.Error(err)
		}
	}
}

var hexField = regexp.MustCompile(`^([0-9a-f]{2})+$`)

// blockBytes returns the bytes that each line of a block lists in hexadecimal.
// Two or more spaces end the list.
func blockBytes(t *testing.T, block string) string {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(block) {
		fields, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		for field := range strings.SplitSeq(fields, " ") {
			if field != "" && !hexField.MatchString(field) {
				t.Fatalf("%q is not hexadecimal", field)
			}
			all.WriteString(field)
		}
	}
	return all.String()
}

func decimal(n int) string {
	return strings.TrimLeft(string([]byte{'0' + byte(n/100%10), '0' + byte(n/10%10), '0' + byte(n%10)}), "0")
}

// TestDocumentListsEveryFrameAndLimit checks that the tables are complete.
func TestDocumentListsEveryFrameAndLimit(t *testing.T) {
	text, err := os.ReadFile("ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		ExportMemory, ExportInitialize, ExportABI, ExportDescribe, ExportBuffer, ExportLoad, ExportApply, ExportHandle,
		ExportQuery, ExportSnapshot, ExportDrop, ImportModule, ImportLog, ImportNow, ImportRandom, ImportWASI,
	} {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("ABI.md does not name %s", name)
		}
	}
	for _, name := range regexp.MustCompile("`([a-z]+(_[a-z]+)+)`").FindAllStringSubmatch(section(string(text), "## Imports"), -1) {
		if name[1] != ImportWASI && name[1] != "wasi_snapshot_preview" && !IsWASIFunction(name[1]) {
			t.Errorf("ABI.md allows %s, the code does not", name[1])
		}
	}
}

func section(text, heading string) string {
	_, text, _ = strings.Cut(text, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// TestFuelIsDocumented checks that the budgets in FUEL.md and MANIFEST.md equal
// the limits.
func TestFuelIsDocumented(t *testing.T) {
	limits := DefaultLimits()
	for file, budgets := range map[string]map[string]int{
		"FUEL.md": {"hostd_handle": limits.CommandFuel, "hostd_query": limits.QueryFuel, "hostd_apply": limits.EventFuel,
			"hostd_load": limits.LoadFuel, "_initialize": limits.StartFuel},
		"MANIFEST.md": {"fuel of a command": limits.CommandFuel},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, budget := range budgets {
			want := regexp.MustCompile(`(?m)^\| .?` + name + `.*\| ` + thousands(budget))
			if !want.Match(text) {
				t.Errorf("%s does not say that %s has %s", file, name, thousands(budget))
			}
		}
	}
}

func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
