// SPDX-License-Identifier: Apache-2.0

// Package docs compares what the documentation says of the tree with the tree.
package docs

import (
	"bufio"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "coelan.io/coelan/"
)

// described is a row of the table of packages.
type described struct {
	name  string
	never []string // what it does not import, itself or what is below
}

var code = regexp.MustCompile("`([^`]+)`")

// packages are the rows of the table "Every package" in docs/develop/architecture.md.
func packages(t *testing.T) (rows []described) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "docs/develop/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "## ") {
			in = line == "## Every package"
		}
		cells := strings.Split(line, "|")
		if !in || len(cells) != 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		row := described{name: code.FindStringSubmatch(cells[1])[1]}
		for _, m := range code.FindAllStringSubmatch(cells[4], -1) {
			row.never = append(row.never, m[1])
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// imports are those of the tree's packages that have code beside tests, without the module's own
// name; by package.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, top := range []string{"api", "cmd", "internal", "openflow"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			found[dir] = append(found[dir], nil...)
			for _, i := range file.Imports {
				name, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					return err
				}
				found[dir] = append(found[dir], strings.TrimPrefix(name, module))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// Each package has a row that says what it reads, writes and never imports, and keeps to the last.
func TestEveryPackageIsDescribed(t *testing.T) {
	rows, tree := packages(t), imports(t)
	for _, r := range rows {
		list, exists := tree[r.name]
		if !exists {
			t.Errorf("docs/develop/architecture.md describes %s, which does not exist", r.name)
		}
		delete(tree, r.name)
		for _, never := range r.never {
			for _, i := range list {
				if i == never || strings.HasPrefix(i, never+"/") {
					t.Errorf("%s imports %s, and docs/develop/architecture.md says that it never does", r.name, i)
				}
			}
		}
	}
	for name := range tree {
		t.Errorf("docs/develop/architecture.md does not describe %s", name)
	}
	if !slices.IsSortedFunc(rows, func(a, b described) int { return strings.Compare(a.name, b.name) }) {
		t.Error("the rows are not sorted")
	}
}
