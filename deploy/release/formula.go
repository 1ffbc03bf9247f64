package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/template"
)

// defaultDownloads is the folder that users download a release from. It contains
// VERSION.
const defaultDownloads = "https://github.com/hostd/hostd/releases/download/vVERSION"

// formulaText is a Homebrew formula. Homebrew unpacks the archive and runs
// install in its only folder.
var formulaText = template.Must(template.New("formula").Parse(`class Hostd < Formula
  desc "Runtime for durable entities written in WebAssembly"
  homepage "https://github.com/hostd/hostd"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.Processor}} do
      url "{{.URL}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "hostd"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/hostd.bash" => "hostd"
    zsh_completion.install "completions/_hostd"
    fish_completion.install "completions/hostd.fish"
    doc.install "THIRD_PARTY_NOTICES.txt"
  end

  service do
    run [opt_bin/"hostd", "serve", "--data-dir", var/"hostd"]
    keep_alive crashed: true
    log_path var/"log/hostd.log"
    error_log_path var/"log/hostd.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/hostd version")
  end
end
`))

type formulaSystem struct {
	Name     string
	Archives []formulaArchive
}

type formulaArchive struct{ Processor, URL, Sum string }

// formula writes hostd.rb, a Homebrew formula with the sums of the archives.
func (r *release) formula() error {
	var systems []formulaSystem
	for _, system := range []struct{ name, brew string }{{"darwin", "macos"}, {"linux", "linux"}} {
		s := formulaSystem{Name: system.brew}
		for _, processor := range []struct{ name, brew string }{{"arm64", "arm"}, {"amd64", "intel"}} {
			if !slices.Contains(r.pairs, system.name+"/"+processor.name) {
				continue
			}
			name := fmt.Sprintf("hostd_%s_%s_%s.tar.gz", r.version, system.name, processor.name)
			content, err := os.ReadFile(filepath.Join(r.out, name))
			if err != nil {
				return err
			}
			s.Archives = append(s.Archives, formulaArchive{processor.brew, r.downloads + "/" + name, fmt.Sprintf("%x", sha256.Sum256(content))})
		}
		if len(s.Archives) > 0 {
			systems = append(systems, s)
		}
	}
	if len(systems) == 0 {
		return nil // Homebrew runs on none of the systems
	}
	var out bytes.Buffer
	if err := formulaText.Execute(&out, struct {
		Version string
		Systems []formulaSystem
	}{r.version, systems}); err != nil {
		return err
	}
	return r.write("hostd.rb", out.Bytes())
}
