// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// commentWidth is in columns; a tab counts four.
const commentWidth = 100

// persons are words for persons. Users and operators are called that; programs, packets and objects
// are things.
var persons = regexp.MustCompile(`(?i)\b(who|whom|whose|whoever|somebody|nobody|anybody|everybody)\b`)

// Comments are no wider than commentWidth, and have no words for persons.
func TestComments(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && name != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) == ".go" {
			checkComments(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkComments(t *testing.T, path string) {
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return
	}
	relative, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	for _, group := range file.Comments {
		output := strings.HasPrefix(group.Text(), "Output:")
		for _, c := range group.List {
			// Exceptions for the linter, examples of commands and output cannot be split.
			fixed := output || strings.HasPrefix(c.Text, "//") && !strings.HasPrefix(c.Text, "// ")
			if strings.HasPrefix(c.Text, "// +") { // a marker for generators
				continue
			}
			first := set.Position(c.Pos()).Line
			for i, text := range strings.Split(c.Text, "\n") {
				line := strings.ReplaceAll(lines[first+i-1], "\t", "    ")
				if utf8.RuneCountInString(line) > commentWidth && !fixed {
					t.Errorf("%s:%d: comment wider than %d columns", relative, first+i, commentWidth)
				}
				if word := persons.FindString(text); word != "" {
					t.Errorf("%s:%d: %q: name the thing and say what it does", relative, first+i, word)
				}
			}
		}
	}
}
