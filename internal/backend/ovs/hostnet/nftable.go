// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nftable is one of Coelan's tables, as it should be.
type nftable struct {
	name string
	// family is that of the table if it is not inet.
	family nftables.TableFamily
	chains []chain
	sets   []set
}

// chain is a base chain with its rules.
type chain struct {
	*nftables.Chain
	rules []rule
}

func (t nftable) kernel() *nftables.Table {
	return &nftables.Table{Name: t.name, Family: cmp.Or(t.family, nftables.TableFamilyINet)}
}

// apply compares the table with what the kernel has, and brings it there. It returns what the sets
// held before; nothing, if that is of no use.
//
// Other elements are exchanged inside the sets; any other difference replaces the whole table. Both
// are one transaction of the kernel: no packet sees a half.
func (t nftable) apply(conn *nftables.Conn) (before []set, n int, err error) {
	whole, err := t.sameStructure(conn)
	if err != nil {
		return nil, 0, err
	}
	if !whole {
		return nil, 1, t.replace(conn)
	}
	have, err := t.read(conn)
	if err != nil {
		return nil, 0, err
	}
	n, err = t.change(conn, have, chainChanges{})
	return have, n, err
}

// change is apply where it is known what sets the kernel has, with which contents, and which chains
// differ. Those that stay are not touched.
func (t nftable) change(conn *nftables.Conn, have []set, chains chainChanges) (int, error) {
	if t.costly(have) {
		return 1, t.replace(conn)
	}
	for _, name := range chains.gone {
		conn.DelChain(&nftables.Chain{Table: t.kernel(), Name: name})
	}
	t.addChains(conn, chains.come)
	n := min(1, len(chains.come)+len(chains.gone))
	for i, s := range t.sets {
		k, err := s.exchange(conn, s.kernel(t.kernel()), have[i])
		if err != nil {
			return 0, fmt.Errorf("set %s: %w", s.name, err)
		}
		n += k
	}
	if n == 0 {
		return 0, nil
	}
	return n, conn.Flush()
}

// chainChanges are the chains by which two tables differ.
type chainChanges struct {
	come []chain
	gone []string // by their names
}

// chainsFrom compares the chains, which have the texts want, with those that a table has; false if
// one is to be another one.
func (t nftable) chainsFrom(have, want map[string]string) (changes chainChanges, ok bool) {
	gone := maps.Clone(have)
	for _, c := range t.chains {
		text, there := have[c.Name]
		switch {
		case !there:
			changes.come = append(changes.come, c)
		case text != want[c.Name]:
			return chainChanges{}, false
		}
		delete(gone, c.Name)
	}
	changes.gone = slices.Collect(maps.Keys(gone))
	return changes, true
}

// texts are those of the chains, by name.
func (t nftable) texts() map[string]string {
	texts := map[string]string{}
	for _, c := range t.chains {
		texts[c.Name] = c.text()
	}
	return texts
}

// text identifies the rules of a chain.
func (c chain) text() string {
	var b strings.Builder
	for _, r := range c.rules {
		b.WriteString(r.digest() + "\n")
	}
	return b.String()
}

// sameStructure says whether the table exists with exactly these chains, rules and sets, whatever
// the sets hold.
func (t nftable) sameStructure(conn *nftables.Conn) (bool, error) {
	table := t.kernel()
	if ok, err := exists(conn, table); !ok || err != nil {
		return false, err
	}
	have, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false, err
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != table.Name })
	if len(have) != len(t.chains) {
		return false, nil
	}
	for _, c := range t.chains {
		i := slices.IndexFunc(have, c.sameHook)
		if i < 0 {
			return false, nil
		}
		if rules, err := conn.GetRules(table, have[i]); err != nil || !c.sameRules(rules) {
			return false, err
		}
	}
	present, err := conn.GetSets(table)
	return err == nil && t.sameSets(present), err
}

// sameSets compares the names and forms of sets.
func (t nftable) sameSets(have []*nftables.Set) bool {
	return len(have) == len(t.sets) && !slices.ContainsFunc(t.sets, func(s set) bool {
		return !slices.ContainsFunc(have, s.sameType)
	})
}

func exists(conn *nftables.Conn, table *nftables.Table) (bool, error) {
	tables, err := conn.ListTablesOfFamily(table.Family)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool {
		return t.Name == table.Name && t.Flags == 0
	}), nil
}

// sameHook says that a chain of the kernel has the name of c and is called where c is.
func (c chain) sameHook(k *nftables.Chain) bool {
	return k.Name == c.Name && k.Type == c.Type && k.Hooknum != nil && *k.Hooknum == *c.Hooknum &&
		k.Priority != nil && *k.Priority == *c.Priority
}

// sameRules recognizes a rule by the comment that it was written with, the digest of its
// expressions; the kernel does not let a rule be changed without its comment.
func (c chain) sameRules(have []*nftables.Rule) bool {
	return slices.EqualFunc(c.rules, have, func(r rule, k *nftables.Rule) bool {
		return bytes.Equal(k.UserData, r.comment())
	})
}

// comment is the rule's user data: the digest of what is sent, in the form that nft prints.
func (r rule) comment() []byte {
	return userdata.Append(nil, userdata.TypeComment, []byte("coelan "+r.digest()+"\x00"))
}

// digest identifies what the rule does, as the kernel is told it.
func (r rule) digest() string {
	h := sha256.New()
	for _, e := range r.exprs {
		b, err := expr.Marshal(byte(nftables.TableFamilyINet), e)
		if err != nil {
			// The rules are the program's own: only an expression that cannot be sent at all fails.
			panic(fmt.Sprintf("rule %q: %v", r.text, err))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// replace writes the whole table anew.
func (t nftable) replace(conn *nftables.Conn) error {
	table := t.kernel()
	// Deleting is an error for a table that is not there; adding it first never is.
	conn.AddTable(table)
	conn.DelTable(table)
	conn.AddTable(table)
	for _, s := range t.sets {
		k := s.kernel(table)
		// The error is one of the arguments' form, and these are fixed.
		_ = conn.AddSet(k, nil)
		if err := s.add(conn, k, s.all()); err != nil {
			return err
		}
	}
	t.addChains(conn, t.chains)
	return conn.Flush()
}

// addChains queues chains with their rules.
func (t nftable) addChains(conn *nftables.Conn, chains []chain) {
	table := t.kernel()
	for _, c := range chains {
		c.Table = table
		conn.AddChain(c.Chain)
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: c.Chain, Exprs: r.exprs, UserData: r.comment()})
		}
	}
}

// costly says that a new table is made sooner than the contents of its sets are exchanged.
func (t nftable) costly(have []set) bool {
	for i, s := range t.sets {
		if s.costly(have[i]) {
			return true
		}
	}
	return false
}

// read gives the contents of the sets, in the order of t's.
func (t nftable) read(conn *nftables.Conn) ([]set, error) {
	have := make([]set, len(t.sets))
	for i, s := range t.sets {
		elements, err := conn.GetSetElements(s.kernel(t.kernel()))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("set %s: %w", s.name, err)
		}
		have[i] = s.read(elements)
	}
	return have, nil
}

// remove deletes the table; one that is not there is fine.
func (t nftable) remove(conn *nftables.Conn) error {
	conn.AddTable(t.kernel())
	conn.DelTable(t.kernel())
	return conn.Flush()
}

// nftSocket is a connection to nftables that knows which events of the kernel are its own doing.
type nftSocket struct {
	conn *nftables.Conn
	// port is the netlink port of conn; 0: there is none.
	port atomic.Uint32
}

// nftBuffers let a transaction with ten thousands of elements pass, which is one message to the
// kernel's socket. It takes memory only while there is one.
const nftBuffers = 64 << 20

// open connects unless there is a connection.
func (s *nftSocket) open() (*nftables.Conn, error) {
	if s.conn != nil {
		return s.conn, nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(s.prepare))
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	s.conn = conn
	return conn, nil
}

func (s *nftSocket) prepare(c *netlink.Conn) error {
	_ = c.SetWriteBuffer(nftBuffers)
	_ = c.SetReadBuffer(nftBuffers)
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var name unix.Sockaddr
	if e := raw.Control(func(fd uintptr) { name, err = unix.Getsockname(int(fd)) }); e != nil {
		return e
	}
	if a, ok := name.(*unix.SockaddrNetlink); ok {
		s.port.Store(a.Pid)
	}
	return err
}

// close ends the connection. After an error there is no telling which answer the next one would be.
func (s *nftSocket) close() {
	if s.conn != nil {
		_ = s.conn.CloseLasting()
	}
	s.conn = nil
	s.port.Store(0)
}

// own says that this socket caused an event.
func (s *nftSocket) own(m netlink.Message) bool {
	return m.Header.PID != 0 && m.Header.PID == s.port.Load()
}

// with runs f on the connection.
func (s *nftSocket) with(t nftable, f func(*nftables.Conn) (int, error)) (int, error) {
	conn, err := s.open()
	if err != nil {
		return 0, err
	}
	n, err := f(conn)
	if err != nil {
		s.close()
		return 0, fmt.Errorf("nftables table %s: %w", t.name, err)
	}
	return n, nil
}
