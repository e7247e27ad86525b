// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ovn-kubernetes/libovsdb/model"
	db "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"coelan.io/coelan/internal/backend/ovs/rows"
)

// foreignChange is a transaction that makes a foreign bridge what it should be.
type foreignChange struct {
	*session
	b      ForeignBridge
	root   *rows.OpenVSwitch
	bridge *rows.Bridge // empty while there is none

	ops     []db.Operation
	missing []string // what it makes, in words
	// inserted are the rows that it makes, with what has to forget them to undo it.
	inserted  []reference
	newBridge bool
	uplinks   []Port // that it makes
}

// reference is a column of a row that names a row which a transaction inserts.
type reference struct {
	op                 int // the operation that inserts
	table, row, column string
}

// fresh is a row that a transaction inserts: its name there, and the operation.
type fresh struct {
	name string
	op   int
}

// foreignChange finds what is missing for a foreign bridge, and for a port on it unless that is
// nil.
func (s *session) foreignChange(b ForeignBridge, p *Port) (*foreignChange, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	f := &foreignChange{session: s, b: b, root: root, bridge: s.bridge(b.Name)}
	if err := f.allowed(); err != nil {
		return nil, err
	}
	if f.bridge == nil {
		f.bridge, f.newBridge, f.missing = &rows.Bridge{}, true, []string{"it does not exist"}
	}
	return f, f.plan(p)
}

func (f *foreignChange) plan(p *Port) error {
	managers, err := f.managers()
	if err != nil {
		return err
	}
	controllers, err := f.controllers()
	if err != nil {
		return err
	}
	ports, err := f.uplink()
	if err != nil {
		return err
	}
	if p != nil {
		more, err := f.pod(*p)
		if err != nil {
			return portError(p.Name, err)
		}
		ports = append(ports, more...)
	}
	f.place(rows.TableOpenVSwitch, f.root.UUID, "manager_options", managers)
	if f.newBridge {
		return f.insertBridge(ports, controllers)
	}
	f.place(rows.TableBridge, f.bridge.UUID, "ports", ports)
	f.place(rows.TableBridge, f.bridge.UUID, "controller", controllers)
	return nil
}

// allowed refuses the bridges of Coelan's data path, and interfaces that are elsewhere.
func (f *foreignChange) allowed() error {
	if f.bridge == nil && f.port(f.b.Name) != nil {
		return errors.New("a port of another bridge has this name: choose another, or remove it")
	}
	if f.bridge != nil {
		if f.bridge.ExternalIDs[OwnerKey] == OwnerValue {
			return errors.New("it is one of the agent's own, and the agent is its only controller: name another one")
		}
		for _, port := range f.portsOf(f.bridge) {
			if i := f.iface(port.Name); i != nil && i.ExternalIDs[OwnerKey] == OwnerValue {
				return fmt.Errorf("it has the agent's port %s, and leads Networks of Coelan to a physical network:"+
					" name another one", port.Name)
			}
		}
	}
	if port := f.port(f.b.Uplink); port != nil {
		if on := f.bridgeOf(port); on != nil && on.Name != f.b.Name {
			return fmt.Errorf("interface %s is a port of bridge %s already: remove it there", f.b.Uplink, on.Name)
		}
	}
	return nil
}

// managers are those that are missing.
func (f *foreignChange) managers() ([]fresh, error) {
	e := endpoints{"manager", rows.TableManager, f.root.Managers, f.b.Manager}
	missing := f.endpoints(e, rows.TableOpenVSwitch, f.root.UUID, "manager_options")
	if !missing {
		return nil, nil
	}
	return f.insert(e.kind, &rows.Manager{UUID: e.kind, Target: e.target, ExternalIDs: f.configured()})
}

// controllers are those that are missing.
func (f *foreignChange) controllers() ([]fresh, error) {
	e := endpoints{"controller", rows.TableController, f.bridge.Controllers, f.b.Controller}
	missing := f.endpoints(e, rows.TableBridge, f.bridge.UUID, "controller")
	if !missing {
		return nil, nil
	}
	return f.insert(e.kind, &rows.Controller{UUID: e.kind, Target: e.target, ExternalIDs: f.configured()})
}

// endpoints are the controllers, or the managers, that there are, and the target of the one that is
// to be there.
type endpoints struct {
	kind, table string
	have        []string
	target      string
}

// endpoints has a column forget what was made for the same network configuration and is not wanted
// any more, and says whether the wanted one is missing.
func (f *foreignChange) endpoints(e endpoints, table, row, column string) (missing bool) {
	missing = e.target != ""
	var stale []string
	for _, uuid := range e.have {
		target, ids := f.endpoint(e.table, uuid)
		switch {
		case target == e.target:
			missing = false
		case f.outdated(ids):
			stale = append(stale, uuid)
			f.missing = append(f.missing, fmt.Sprintf("its %s %s is not wanted", e.kind, target))
		}
	}
	f.ops = append(f.ops, remove(table, row, column, stale)...)
	if missing {
		f.missing = append(f.missing, fmt.Sprintf("%s %s is missing", e.kind, e.target))
	}
	return missing
}

// uplink makes the port of the node's interface if it is missing, and removes another one that was
// made for the same network configuration.
func (f *foreignChange) uplink() ([]fresh, error) {
	missing := f.b.Uplink != ""
	var stale []string
	for _, port := range f.portsOf(f.bridge) {
		i := f.iface(port.Name)
		switch {
		case port.Name == f.b.Uplink:
			missing = false
		case i != nil && f.outdated(i.ExternalIDs):
			stale = append(stale, port.UUID)
			f.missing = append(f.missing, fmt.Sprintf("its uplink %s is not wanted", port.Name))
		}
	}
	f.ops = append(f.ops, remove(rows.TableBridge, f.bridge.UUID, "ports", stale)...)
	if !missing {
		return nil, nil
	}
	f.missing = append(f.missing, fmt.Sprintf("interface %s is not a port of it", f.b.Uplink))
	f.uplinks = append(f.uplinks, Port{Name: f.b.Uplink})
	return f.insertPort("uplink", &rows.Interface{Name: f.b.Uplink, ExternalIDs: f.configured()})
}

// pod makes a pod's port if it is missing.
func (f *foreignChange) pod(p Port) ([]fresh, error) {
	ids := foreignIDs(p.ExternalIDs)
	port := f.port(p.Name)
	if port == nil {
		f.missing = append(f.missing, fmt.Sprintf("port %s is missing", p.Name))
		return f.insertPort("pod", &rows.Interface{Name: p.Name, ExternalIDs: ids})
	}
	have := f.iface(p.Name)
	switch on := f.bridgeOf(port); {
	case have == nil || !isForeign(have.ExternalIDs):
		return nil, errors.New("exists and is not Coelan's: remove it")
	case on == nil || on.Name != f.b.Name:
		return nil, errors.New("is on another bridge: delete the pod, so that it is made anew")
	case maps.Equal(have.ExternalIDs, ids):
		return nil, nil
	}
	f.missing = append(f.missing, fmt.Sprintf("port %s has other external_ids", p.Name))
	want := &rows.Interface{ExternalIDs: ids}
	ops, err := f.cli.Where(have).Update(want, &want.ExternalIDs)
	f.ops = append(f.ops, ops...)
	return nil, err
}

// insertBridge makes the bridge, with what is new on it.
func (f *foreignChange) insertBridge(ports, controllers []fresh) error {
	local, err := f.insertPort("local", &rows.Interface{Name: f.b.Name, Type: "internal", ExternalIDs: foreignIDs(nil)})
	if err != nil {
		return err
	}
	secure := Bridge{}.failMode()
	row := &rows.Bridge{
		UUID: "bridge", Name: f.b.Name, DatapathType: f.b.Datapath, FailMode: &secure, Protocols: protocols,
		ExternalIDs: foreignIDs(nil),
	}
	for _, n := range append(local, ports...) {
		row.Ports = append(row.Ports, n.name)
	}
	for _, n := range controllers {
		row.Controllers = append(row.Controllers, n.name)
	}
	bridge, err := f.insert(row.UUID, row)
	f.place(rows.TableOpenVSwitch, f.root.UUID, "bridges", bridge)
	return err
}

// insertPort makes a port with its interface. Both have the external_ids: some programs read those
// of the one, some those of the other.
func (f *foreignChange) insertPort(as string, i *rows.Interface) ([]fresh, error) {
	i.UUID = as + "Interface"
	if _, err := f.insert(i.UUID, i); err != nil {
		return nil, err
	}
	port := &rows.Port{UUID: as + "Port", Name: i.Name, Interfaces: []string{i.UUID}, ExternalIDs: i.ExternalIDs}
	return f.insert(port.UUID, port)
}

// insert makes a row that the transaction knows by a name.
func (f *foreignChange) insert(name string, row model.Model) ([]fresh, error) {
	op := len(f.ops)
	ops, err := f.create(row)
	f.ops = append(f.ops, ops...)
	return []fresh{{name, op}}, err
}

// place has a column of a row that is there name new rows.
func (f *foreignChange) place(table, row, column string, list []fresh) {
	for _, n := range list {
		f.ops = append(f.ops, mutation(table, row, column, db.MutateOperationInsert, []string{n.name}))
		f.inserted = append(f.inserted, reference{n.op, table, row, column})
	}
}

// undo takes back what the transaction has made, by the identities in its results.
func (f *foreignChange) undo(ctx context.Context, results []db.OperationResult) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	var ops []db.Operation
	for _, r := range f.inserted {
		ops = append(ops, remove(r.table, r.row, r.column, []string{results[r.op].UUID.GoUUID})...)
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := f.configure(ctx, ops); err != nil {
		return fmt.Errorf("what was made is left: %w", err)
	}
	return nil
}

// configured are the external_ids of what a network configuration names.
func (f *foreignChange) configured() map[string]string {
	return foreignIDs(map[string]string{networkKey: f.b.Network})
}

// outdated says whether something was made because the same network configuration named it.
func (f *foreignChange) outdated(ids map[string]string) bool {
	return isForeign(ids) && ids[networkKey] == f.b.Network
}

// remove has a set of references forget some.
func remove(table, row, column string, uuids []string) []db.Operation {
	if len(uuids) == 0 {
		return nil
	}
	return []db.Operation{mutation(table, row, column, db.MutateOperationDelete, uuids)}
}

func mutation(table, row, column string, mutator db.Mutator, uuids []string) db.Operation {
	set := make([]any, len(uuids))
	for i, uuid := range uuids {
		set[i] = db.UUID{GoUUID: uuid}
	}
	return db.Operation{
		Op: db.OperationMutate, Table: table,
		Where:     []db.Condition{db.NewCondition("_uuid", db.ConditionEqual, db.UUID{GoUUID: row})},
		Mutations: []db.Mutation{*db.NewMutation(column, mutator, db.OvsSet{GoSet: set})},
	}
}
