// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"coelan.io/coelan/openflow"
)

// datapathPage has the register map and the list of tables between markers.
const datapathPage = "../../../../docs/develop/datapath.md"

// TestDatapathPage fails if docs/develop/datapath.md does not have this package's tables and
// registers; -update writes them.
func TestDatapathPage(t *testing.T) {
	page, err := os.ReadFile(datapathPage)
	if err != nil {
		t.Fatal(err)
	}
	want := page
	for name, text := range map[string]string{"registers": registerRows(), "tables": tableRows()} {
		begin := fmt.Appendf(nil, "<!-- generated: %s (make generate) -->\n", name)
		end := []byte("<!-- end of what is generated -->\n")
		before, rest, ok := bytes.Cut(want, begin)
		_, after, ended := bytes.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("%s has no place for the %s: want %s", datapathPage, name, begin)
		}
		want = slices.Concat(before, begin, []byte(text), end, after)
	}
	if *update {
		if err := os.WriteFile(datapathPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("%s is not what the pipeline has: run `make generate` (-want +got)\n%s", datapathPage, diff)
	}
}

func registerRows() string {
	var b strings.Builder
	b.WriteString("| register | in | holds |\n|---|---|---|\n")
	sorted := slices.SortedStableFunc(slices.Values(registers), func(a, b register) int {
		fieldA, firstA := place(a.bits)
		fieldB, firstB := place(b.bits)
		return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(firstA, firstB), cmp.Compare(a.part, b.part))
	})
	for _, r := range sorted {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", registerName(r.bits), r.part, r.holds)
	}
	return b.String()
}

func tableRows() string {
	owner := map[uint8]string{}
	for _, f := range features {
		for _, t := range f.tables {
			owner[t.ID] = f.name
		}
	}
	var b strings.Builder
	b.WriteString("| table | name | feature | what it does |\n|---|---|---|---|\n")
	for _, t := range Tables() {
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", t.ID, t.Name, owner[t.ID], t.Purpose)
	}
	return b.String()
}

// ctMarkPlace sorts behind all registers.
const ctMarkPlace = 16

// place is the 32-bit register in which the lowest bits of s are (ctMarkPlace: ct_mark), and
// the first of them there. A field of several registers has its high bits in the first one;
// it is sorted there.
func place(s openflow.Subfield) (register, first int) {
	if s.Field == openflow.FieldCTMark {
		return ctMarkPlace, int(s.Ofs)
	}
	for n := range 16 {
		if s.Field == openflow.Reg(n) {
			return n, int(s.Ofs)
		}
	}
	for n := range 8 {
		if s.Field == openflow.XReg(n) {
			return 2 * n, int(s.Ofs)
		}
	}
	for n := range 4 {
		if s.Field == openflow.XXReg(n) {
			return 4 * n, int(s.Ofs)
		}
	}
	return -1, 0
}

func registerName(s openflow.Subfield) string {
	first, _ := place(s)
	name := s.Field.String()
	switch s.Field.Width() {
	case 64:
		name = fmt.Sprintf("reg%d, reg%d (%s)", first, first+1, name)
	case 128:
		name = fmt.Sprintf("reg%d to reg%d (%s)", first, first+3, name)
	}
	last := int(s.Ofs + s.N - 1)
	switch {
	case int(s.N) == s.Field.Width():
		return name
	case s.N == 1:
		return fmt.Sprintf("%s, bit %d", name, last)
	}
	return fmt.Sprintf("%s, bits %d–%d", name, s.Ofs, last)
}

// bit is one of a 32-bit register, or of ct_mark.
type bit struct{ register, n int }

// bitsOf are the bits of 32-bit registers that s consists of, the lowest first.
func bitsOf(s openflow.Subfield) []bit {
	first, _ := place(s)
	words := s.Field.Width() / 32
	var all []bit
	for i := int(s.Ofs); i < int(s.Ofs+s.N); i++ {
		all = append(all, bit{first + words - 1 - i/32, i % 32})
	}
	return all
}

// Two parts of the pipeline may use the same bits, one part uses them for one thing, and what holds
// everywhere has bits of its own.
func TestRegistersDoNotOverlap(t *testing.T) {
	for i, a := range registers {
		for _, b := range registers[:i] {
			if a.part != b.part && a.part != "" && b.part != "" {
				continue
			}
			taken := bitsOf(b.bits)
			for _, o := range bitsOf(a.bits) {
				if slices.Contains(taken, o) {
					t.Errorf("%s holds %q and, in %s, %q", registerName(b.bits), b.holds, registerName(a.bits), a.holds)
					break
				}
			}
		}
	}
}

var (
	// How ovs-ofctl prints a match, a value that is set, and a field that another action names.
	matched = regexp.MustCompile(`\b(x{0,2}reg\d+|ct_mark)=(0x[0-9a-f]+|\d+)(?:/(0x[0-9a-f]+))?`)
	set     = regexp.MustCompile(`set_field:([0-9a-fx]+)(?:/(0x[0-9a-f]+))?->(x{0,2}reg\d+|ct_mark)\b`)
	named   = regexp.MustCompile(`\b(?:NXM_NX_|OXM_OF_)?(XXREG|PKT_REG|REG|CT_MARK)(\d*)\[(?:(\d+)(?:\.\.(\d+))?)?\]`)
)

// TestRegisterMapIsComplete looks for bits in the golden flows that no entry of
// the register map has.
func TestRegisterMapIsComplete(t *testing.T) {
	known := map[bit]bool{}
	for _, r := range registers {
		for _, b := range bitsOf(r.bits) {
			known[b] = true
		}
	}
	used := map[bit]string{}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(archive.Files[1].Data)) {
			for _, b := range bitsIn(t, line) {
				used[b] = line
			}
		}
	}
	if len(used) < 100 {
		t.Errorf("only %d bits are used: are flows printed in another way?", len(used))
	}
	for b, line := range used {
		if !known[b] {
			t.Errorf("register %d (%d: ct_mark), bit %d is not in the register map: %s", b.register, ctMarkPlace, b.n, line)
		}
	}
}

// bitsIn are the bits of registers that a flow compares, sets to 1 or moves.
func bitsIn(t *testing.T, flow string) (all []bit) {
	add := func(field openflow.Field, mask string) {
		n, ok := new(big.Int).SetString(mask, 0)
		if !ok {
			t.Fatalf("%q is no number: %s", mask, flow)
		}
		for i := range field.Width() {
			if n.Bit(i) != 0 {
				all = append(all, bitsOf(field.Bits(i, i))...)
			}
		}
	}
	for _, m := range matched.FindAllStringSubmatch(flow, -1) {
		if m[3] == "" {
			all = append(all, bitsOf(fieldNamed(t, m[1]).All())...)
			continue
		}
		add(fieldNamed(t, m[1]), m[3])
	}
	for _, m := range set.FindAllStringSubmatch(flow, -1) {
		add(fieldNamed(t, m[3]), cmp.Or(m[2], m[1]))
	}
	for _, m := range named.FindAllStringSubmatch(flow, -1) {
		name := map[string]string{"XXREG": "xxreg", "PKT_REG": "xreg", "REG": "reg", "CT_MARK": "ct_mark"}[m[1]] + m[2]
		s := fieldNamed(t, name).All()
		if m[3] != "" {
			lo, _ := strconv.Atoi(m[3])
			hi, _ := strconv.Atoi(cmp.Or(m[4], m[3]))
			s = s.Field.Bits(lo, hi)
		}
		all = append(all, bitsOf(s)...)
	}
	return all
}

func fieldNamed(t *testing.T, name string) openflow.Field {
	n, _ := strconv.Atoi(strings.TrimLeft(name, "xregct_mak"))
	switch {
	case name == "ct_mark":
		return openflow.FieldCTMark
	case strings.HasPrefix(name, "xx"):
		return openflow.XXReg(n)
	case strings.HasPrefix(name, "x"):
		return openflow.XReg(n)
	case strings.HasPrefix(name, "reg"):
		return openflow.Reg(n)
	}
	t.Fatalf("no register is called %s", name)
	return 0
}
