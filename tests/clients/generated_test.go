package clients

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedClientIsSmall checks the size of the client that a browser
// loads.
func TestGeneratedClientIsSmall(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(compiled(t), "hostd.js"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d compressed", len(text), packed.Len())
	if packed.Len() > 8<<10 {
		t.Errorf("the generated client has %d bytes compressed, want at most 8 KiB", packed.Len())
	}
}

// TestOpenAPICompiles checks that types can be generated from the OpenAPI
// document.
func TestOpenAPICompiles(t *testing.T) {
	maker, tsc, dir := tool(t, "openapi-typescript"), tool(t, "tsc"), t.TempDir()
	generate(t, "openapi", dir)
	run(t, dir, maker, "openapi.json", "-o", "api.ts")
	use := `import type { paths } from "./api";
type Op = paths["/e/account/{id}/deposit"]["post"];
export const balance = (r: Op["responses"]["200"]["content"]["application/json"]): number | string => r.balance;
export const code = (r: Op["responses"]["422"]["content"]["application/json"]): "not_open" | string => r.code;
`
	if err := os.WriteFile(filepath.Join(dir, "use.ts"), []byte(use), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, tsc, "--strict", "--noEmit", "--target", "es2022", "use.ts")
}
