package clientgen

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/datamodel"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/ts"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/clientgen/testdata/shop"
	"github.com/hostd/hostd/cmd/hostd/internal/modules"
	"github.com/hostd/hostd/host/guest"
)

var rewrite = flag.Bool("rewrite", false, "write the files of testdata that clients are compared with")

const digest = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// shopModule returns a module that uses every feature.
func shopModule(t *testing.T) Module {
	t.Helper()
	text, err := os.ReadFile("testdata/shop.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.CheckSchemas(m); err != nil {
		t.Fatal(err)
	}
	return Module{digest, m}
}

// write generates a client for some types of a module.
func write(t *testing.T, lang string, m Module, types ...string) []byte {
	t.Helper()
	found := map[string]Module{}
	for _, name := range types {
		found[name] = m
	}
	of, err := find(found)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		if l.name == lang {
			text, err := l.write(of, "shop")
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	t.Fatalf("no language %s", lang)
	return nil
}

// TestClientsMatchGoldenFiles compares clients with files. The Go file is compiled
// with this test. The part of the TypeScript client that is copied unchanged is
// omitted.
func TestClientsMatchGoldenFiles(t *testing.T) {
	for lang, file := range map[string]string{"ts": "shop.ts.txt", "go": "shop/hostd.go", "openapi": "shop.openapi.json"} {
		got := write(t, lang, shopModule(t), "order", "blob-store", "client")
		if lang == "ts" {
			if !bytes.Contains(got, []byte(ts.Core)) {
				t.Error("the client in TypeScript lacks what calls nodes")
			}
			got = got[:bytes.Index(got, []byte(ts.Core))]
		}
		path := filepath.Join("testdata", file)
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs; -rewrite writes it anew:\n%s", path, got)
		}
	}
}

// TestClientIsReproducible checks that a client is the same whether its module
// comes from a node or from a file, that it names the module, and that it
// contains nothing that clients may not use.
func TestClientIsReproducible(t *testing.T) {
	read := shopModule(t)
	text, err := json.Marshal(read.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	said := &structpb.Struct{}
	if err := said.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	told, err := modules.OfAnswer(&modulev1.GetModuleResponse{Manifest: said})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		a, b := write(t, l.name, read, "order", "blob-store"), write(t, l.name, Module{digest, told}, "blob-store", "order")
		if !bytes.Equal(a, b) {
			t.Errorf("%s: two clients of one module differ", l.name)
		}
		if !bytes.Contains(a, []byte(digest)) {
			t.Errorf("%s: the client does not name its module", l.name)
		}
		if bytes.Contains(a, []byte("secret")) {
			t.Errorf("%s: the client sends a command that is internal", l.name)
		}
		if !bytes.Contains(a, []byte("sold_out")) {
			t.Errorf("%s: the client has no codes of rejections", l.name)
		}
	}
	if _, err := find(map[string]Module{"cart": read}); err == nil || !strings.Contains(err.Error(), "must be one of order, blob-store, client") {
		t.Errorf("a type that the module lacks: %v", err)
	}
}

// TestOpenAPIIsValid parses the document with a library.
func TestOpenAPIIsValid(t *testing.T) {
	// Recursive types end with null, which the library ignores.
	config := datamodel.NewDocumentConfiguration()
	config.SkipCircularReferenceCheck = true
	doc, err := libopenapi.NewDocumentWithConfiguration(write(t, "openapi", shopModule(t), "order", "blob-store", "client"), config)
	if err != nil {
		t.Fatal(err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/e/order/{id}/place", "/e/order/{id}/q/total", "/e/order/{id}", "/e/order/events", "/e/blob-store/{id}/put", "/e/client/{id}"} {
		if _, ok := model.Model.Paths.PathItems.Get(want); !ok {
			t.Errorf("there is no path %s", want)
		}
	}
	if faults := model.Index.GetReferenceIndexErrors(); len(faults) > 0 {
		t.Errorf("references lead nowhere: %v", faults)
	}
}

// TestGoClientReadsNumbersAsDigits checks that 64-bit numbers are also read as digits, and
// that missing values are not sent.
func TestGoClientReadsNumbersAsDigits(t *testing.T) {
	told, err := shop.ReadOrderEvent(client.Event{Type: "placed", Data: []byte(`{"lines":[{"sku":"a","amount":"9007199254740993"},{"sku":"b","amount":2}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	placed, ok := told.(shop.OrderPlaced)
	if !ok || len(placed.Data.Lines) != 2 || placed.Data.Lines[0].Amount != 9007199254740993 || placed.Data.Lines[1].Amount != 2 {
		t.Errorf("the event is %+v", told)
	}
	if _, err := shop.ReadOrderEvent(client.Event{Type: "placed", Data: []byte(`{"lines":[{"sku":"a","amount":"many"}]}`)}); err == nil {
		t.Error("a number without digits is read")
	}
	if told, err := shop.ReadOrderEvent(client.Event{Type: "hostd.deleted", Sequence: 7}); err != nil || told.(shop.OrderOtherEvent).Sequence != 7 {
		t.Errorf("an event that is not listed: %+v, %v", told, err)
	}
	text, err := json.Marshal(shop.OrderPlacePayload{Lines: []shop.Line{{Sku: "a", Amount: 1}}})
	if err != nil || string(text) != `{"gift":false,"lines":[{"amount":1,"sku":"a"}]}` {
		t.Errorf("what is sent is %s, %v", text, err)
	}
}

// generate runs the command.
func generate(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	std := cli.Stdio{Out: &stdout, Err: &stderr}
	code = cli.Run(t.Context(), NewClient(std, nil), append([]string{"generate"}, args...), std)
	return code, stdout.String(), stderr.String()
}

// TestInvalidRequestWritesNothing checks that an impossible request fails before
// anything is written or called.
func TestInvalidRequestWritesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	for want, args := range map[string][]string{
		`--lang must be ts, go or openapi, got "java"`: {"--type", "a", "--lang", "java", "-o", dir},
		"with -o":            {"--type", "a", "--lang", "ts"},
		"with --type":        {"--lang", "ts", "-o", dir},
		"--digest selects":   {"m.wasm", "--digest", "0123456789", "--lang", "ts", "-o", dir},
		"--package needs":    {"m.wasm", "--package", "p", "--lang", "ts", "-o", dir},
		"name of a Go pack":  {"m.wasm", "--lang", "go", "-o", dir, "--package", "Func"},
		"no such file or di": {"m.wasm", "--lang", "ts", "-o", dir},
	} {
		code, out, errs := generate(t, args...)
		if code == cli.ExitDone || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d, %q, %q; want %q", args, code, out, errs, want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%q: something is written", args)
		}
	}
}

// TestOnlyGeneratedFilesAreReplaced checks that a file that is not generated is
// not overwritten.
func TestOnlyGeneratedFilesAreReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "hostd.ts")
	first := write(t, "ts", shopModule(t), "order")
	for _, text := range [][]byte{first, write(t, "ts", shopModule(t), "client"), first} {
		if err := replace(path, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("the file has another text: %v", err)
		}
	}
	own := []byte("export const mine = 1;\n")
	if err := os.WriteFile(path, own, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, first); err == nil {
		t.Error("a file that was not generated is written over")
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, own) {
		t.Errorf("the file is %q, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}
