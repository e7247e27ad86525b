// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mention = regexp.MustCompile(`\bdocs/[a-z/-]+\.md\b`)
)

// Links between pages lead to pages that exist, and the README leads to each.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/*/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	readme, linked := filepath.Join(root, "README.md"), map[string]bool{}
	for _, page := range append(pages, readme) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			path := filepath.Join(filepath.Dir(page), target)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s leads to %s, which does not exist", page, m[1])
			}
			if page == readme {
				linked[path] = true
			}
		}
	}
	for _, page := range pages {
		if !linked[page] {
			t.Errorf("README.md does not lead to %s", page)
		}
	}
}

// What code says of a page names one that exists.
func TestMentions(t *testing.T) {
	for _, top := range []string{"api", "cmd", "deploy", "hack", "internal", "openflow", "test", "Makefile", ".golangci.yml"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, page := range mention.FindAllString(string(text), -1) {
				if _, err := os.Stat(filepath.Join(root, page)); err != nil {
					t.Errorf("%s mentions %s, which does not exist", path, page)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The walks name files that exist, at no more stops than a reader remembers.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/develop/walks.md"))
	if err != nil {
		t.Fatal(err)
	}
	const most = 6
	files, stop, walks := regexp.MustCompile("`([a-z][a-z0-9/_-]*\\.go)`"), regexp.MustCompile(`(?m)^\d+\. `), 0
	for walk := range strings.SplitSeq(string(text), "\n## ") {
		named := files.FindAllStringSubmatch(walk, -1)
		if len(named) == 0 {
			continue
		}
		walks++
		if n := len(stop.FindAllString(walk, -1)); n > most {
			title, _, _ := strings.Cut(walk, "\n")
			t.Errorf("%s: %d stops, want at most %d", title, n, most)
		}
		for _, m := range named {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("docs/develop/walks.md names %s, which does not exist", m[1])
			}
		}
	}
	if walks != 4 {
		t.Errorf("%d walks, want 4", walks)
	}
}
