// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/restconf/yangmodel"
)

// API reads and writes objects.
type API interface {
	// Read returns the objects of these resources. With an entry, only those may be there that it
	// is made of.
	Read(ctx context.Context, resources []mapping.Resource, only mapping.Entry) (*mapping.World, error)
	// Commit does all of the changes, or none and returns an error. Afterwards the changes have the
	// objects as they were stored.
	Commit(ctx context.Context, changes []mapping.Change) error
	// Watch calls changed each time objects of a resource may have changed, until ctx ends.
	Watch(ctx context.Context, r mapping.Resource, changed func()) error
}

// datastore is the data of the models, as views of objects.
type datastore struct {
	log    *slog.Logger
	schema *datatree.Node
	lists  map[string]*mapping.List
	api    API
	access *authorizer
}

func newDatastore(log *slog.Logger, api API, access *authorizer) *datastore {
	return &datastore{
		log:    log,
		schema: datatree.NewSchema(yangmodel.SchemaTree["Root"], yangmodel.Root{}),
		lists:  mapping.Lists(), api: api, access: access,
	}
}

// request is what a client wants of a node.
type request struct {
	user Identity
	path datatree.Path
	// entry is the one that an edit writes as a whole.
	entry map[string]any
	// removes reports that the request is to remove the node.
	removes bool
	// operational reads what is in operation.
	operational bool
	// former reports that the client speaks as before RFC 8040.
	former bool
	// ifMatch and ifNoneMatch are the preconditions (RFC 9110, section 13.1); empty: none.
	ifMatch, ifNoneMatch string
}

// selected are the lists that a request concerns, in the order in which they are written.
func (d *datastore) selected(p datatree.Path) []*mapping.List {
	var all []*mapping.List
	for name, l := range d.lists {
		if len(p) == 0 || p[0].Node.Name == name {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *mapping.List) int {
		if a.Late != b.Late {
			return map[bool]int{true: 1, false: -1}[a.Late]
		}
		return strings.Compare(a.Container, b.Container)
	})
	return all
}

// read returns the objects of lists, for an edit with what guards them.
func (d *datastore) read(ctx context.Context, r request, lists []*mapping.List, edit bool) (*mapping.World, error) {
	var resources []mapping.Resource
	add := func(list []mapping.Resource) {
		for _, r := range list {
			if !slices.Contains(resources, r) {
				resources = append(resources, r)
			}
		}
	}
	for _, l := range lists {
		add(l.Reads)
		if edit {
			add(l.Guards)
		}
	}
	return d.api.Read(ctx, resources, d.single(r, edit))
}

// single is the entry of which alone the objects are enough for a request; the zero Entry: all are
// needed.
func (d *datastore) single(r request, edit bool) mapping.Entry {
	if len(r.path) < 2 || r.path[1].Keys == nil {
		return mapping.Entry{}
	}
	l := d.lists[r.path[0].Node.Name]
	one := mapping.Entry{Container: l.Container, Key: datatree.JoinKeys(r.path[1].Keys), Object: l.Object}
	enough := l.Single == mapping.Always && !r.operational || l.Single == mapping.IfRead && !edit
	switch {
	case l.Object != (mapping.Resource{}):
		enough = !r.removes || len(l.Guards) == 0
	case edit && l.Refers != nil:
		enough = l.Refers(&one, r.entry, r.path)
	}
	if !enough {
		return mapping.Entry{}
	}
	return one
}

// tree is the data of lists that a World has, of a path to an entry that entry alone. An object
// that does not fit the models is left out with a warning: it harms no other one.
func (d *datastore) tree(w *mapping.World, lists []*mapping.List, operational bool, path datatree.Path,
) map[string]any {
	tree := map[string]any{}
	for _, l := range lists {
		entries := d.entries(w, l, operational, path)
		container := map[string]any{}
		if len(entries) > 0 {
			container[l.Name] = entries
		}
		if l.Inner != "" {
			container = map[string]any{l.Inner: container}
		}
		tree[l.Container] = container
	}
	return tree
}

// entries are those of a list.
func (d *datastore) entries(w *mapping.World, l *mapping.List, operational bool, path datatree.Path) []any {
	node := d.node(l)
	entries := []any{}
	if l.Show != nil {
		only := ""
		if len(path) > 1 && path[1].Node == node {
			only = datatree.JoinKeys(path[1].Keys)
		}
		for _, entry := range l.Show(w, node, operational, only) {
			entries = append(entries, entry)
		}
		return entries
	}
	show := l.Entries
	if operational && l.Operational != nil {
		show = l.Operational
	}
	for _, e := range show(w) {
		if !concerns(path, node, e) {
			continue
		}
		entry, err := toEntry(node, e)
		if err != nil {
			d.log.Warn("RESTCONF leaves out an object that does not fit the models", "err", err)
			continue
		}
		entries = append(entries, entry)
	}
	return entries
}

// concerns reports whether an entry can be what a path leads to, or in it. Letters of keys may be
// others: the entry in the tree has them as the model wants them.
func concerns(path datatree.Path, list *datatree.Node, e ygot.GoStruct) bool {
	for _, step := range path {
		if step.Node != list || step.Keys == nil {
			continue
		}
		keyed, ok := e.(ygot.KeyHelperGoStruct)
		if !ok {
			return true
		}
		keys, err := keyed.ΛListKeyMap()
		return err != nil || strings.EqualFold(fmt.Sprint(keys[list.Keys[0]]), step.Keys[0])
	}
	return true
}

// clone is a copy of a tree, which an edit may change.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, below := range v {
			object[name] = clone(below)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, below := range v {
			list[i] = clone(below)
		}
		return list
	}
	return value
}

// node is the schema of a list.
func (d *datastore) node(l *mapping.List) *datatree.Node {
	n := d.schema.Children[l.Container]
	if l.Inner != "" {
		n = n.Children[l.Inner]
	}
	return n.Children[l.Name]
}

// holder is the container that a list is in; nil if it was deleted.
func holder(tree map[string]any, l *mapping.List) map[string]any {
	at, _ := tree[l.Container].(map[string]any)
	if l.Inner != "" {
		at, _ = at[l.Inner].(map[string]any)
	}
	return at
}

// toEntry is a Go value as an entry of a tree.
func toEntry(list *datatree.Node, value ygot.GoStruct) (map[string]any, error) {
	object, err := ygot.ConstructIETFJSON(value, &ygot.RFC7951JSONConfig{AppendModuleName: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list.Path(), err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list.Path(), err)
	}
	decoded, err := datatree.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list.Path(), err)
	}
	checked, err := datatree.Check(list, []any{decoded}, list.Path())
	if err != nil {
		return nil, err
	}
	return checked.([]any)[0].(map[string]any), nil
}

// toStruct is an entry as a Go value, valid for the models.
func toStruct(list *datatree.Node, l *mapping.List, entry map[string]any) (ygot.GoStruct, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	var object any
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	value := l.New()
	if err := ytypes.Unmarshal(list.Entry, value, object); err != nil {
		return nil, datatree.Fail(datatree.InvalidValue, "", err.Error())
	}
	if err := ytypes.Validate(list.Entry, value); err != nil {
		return nil, datatree.Fail(datatree.InvalidValue, "", err.Error())
	}
	return value, nil
}

// etag is the entity-tag of a node's configuration (RFC 8040, section 3.5.2): it changes with the
// data alone, whichever replica answers, and whichever client has written it.
func etag(n *datatree.Node, value any) (string, error) {
	kept := datatree.Query{Content: datatree.Config}.Select(n, value)
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(kept); err != nil {
		return "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return `"` + hex.EncodeToString(sum[:12]) + `"`, nil
}

// get returns the data of a node that the client may read, and its entity-tag.
func (d *datastore) get(ctx context.Context, r request) (value any, tag string, err error) {
	lists := d.selected(r.path)
	w, err := d.read(ctx, r, lists, false)
	if err != nil {
		return nil, "", err
	}
	w, err = d.access.visible(ctx, r.user, w, lists, len(r.path) > 0)
	if err != nil {
		return nil, "", err
	}
	return d.look(w, r, lists)
}

// look is a node's data in a World, and its entity-tag.
func (d *datastore) look(w *mapping.World, r request, lists []*mapping.List) (value any, tag string, err error) {
	value, err = datatree.Get(d.tree(w, lists, r.operational, r.path), r.path)
	if err != nil {
		return nil, "", err
	}
	tag, err = etag(r.path.Target(d.schema), value)
	return value, tag, err
}

// result is what an edit has done.
type result struct {
	created bool
	// location is the path of what a POST has made, below {+restconf}/data.
	location string
	tag      string
}

// Writes that meet others start anew so often.
const maxTries = 8

// edit changes the data and returns what has become of the target.
func (d *datastore) edit(ctx context.Context, r request, edit datatree.Edit, body any) (result, error) {
	r.removes = edit == datatree.Delete && len(r.path) == 2
	for try := 1; ; try++ {
		done, err := d.editOnce(ctx, r, edit, body)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return done, err
		}
		if try == maxTries || ctx.Err() != nil {
			return result{}, datatree.Fail(datatree.LockDenied, r.path.String(),
				"is being written by other clients, try again")
		}
	}
}

func (d *datastore) editOnce(ctx context.Context, r request, edit datatree.Edit, body any) (done result, err error) {
	// A body is checked anew for each try, because edits take parts of it into the tree.
	var child *datatree.Node
	var value any
	only := false
	if edit != datatree.Delete {
		if child, value, only, err = datatree.Message(d.schema, r.path, edit, body, r.former); err != nil {
			return result{}, err
		}
	}
	lists := d.selected(r.path)
	at := r
	if edit == datatree.Create {
		at.path = d.narrow(r, child, value)
	}
	if list, ok := value.([]any); ok && len(at.path) == 2 && len(list) == 1 && !only {
		at.entry, _ = list[0].(map[string]any)
	}
	w, err := d.read(ctx, at, lists, true)
	if err != nil {
		return result{}, err
	}
	seen, err := d.access.visible(ctx, r.user, w, lists, false)
	if err != nil {
		return result{}, err
	}
	w.Limit(seen)
	if err := d.precondition(seen, r, lists); err != nil {
		return result{}, err
	}
	old := d.tree(w, lists, false, at.path)
	tree := clone(old).(map[string]any)
	target := r
	switch {
	case only:
		_, err = datatree.Apply(d.schema, tree, r.path, datatree.Merge, nil, map[string]any{child.Name: value})
	case edit == datatree.Create:
		done.created, err = datatree.Apply(d.schema, tree, r.path, edit, child, value)
		target.path = created(r.path, child, value)
		done.location = target.path.URI()
	default:
		done.created, err = datatree.Apply(d.schema, tree, r.path, edit, nil, value)
	}
	if err != nil {
		return result{}, err
	}
	if edit == datatree.Replace && len(r.path) == 1 {
		d.keep(w, lists[0], old, tree)
	}
	after := w.Clone()
	if err := d.write(after, lists, old, tree); err != nil {
		return result{}, err
	}
	changes := mapping.Changes(w, after)
	if err := d.access.mayDo(ctx, r.user, changes); err != nil {
		return result{}, err
	}
	if len(changes) == 0 {
		if err := d.mayKnow(seen, r, lists); err != nil {
			return result{}, err
		}
	}
	if err := d.api.Commit(ctx, changes); err != nil {
		return result{}, err
	}
	// The API has completed what it stored: the entity-tag is of that.
	for _, c := range changes {
		if c.Verb != mapping.Delete {
			after.Put(c.Resource, c.Object)
		}
	}
	if edit != datatree.Delete {
		if _, tag, err := d.look(after, target, lists); err == nil {
			done.tag = tag
		}
	}
	return done, nil
}

// narrow is the path of the one entry that a POST is to make, if it needs no others.
func (d *datastore) narrow(r request, child *datatree.Node, value any) datatree.Path {
	list, _ := value.([]any)
	whole := len(r.path) != 1 || child.Kind != datatree.List || len(list) != 1 || r.ifMatch != "" || r.ifNoneMatch != ""
	if l := d.lists[r.path[0].Node.Name]; whole || l.Object == (mapping.Resource{}) && l.Refers == nil {
		return r.path
	}
	return created(r.path, child, value)
}

// keep puts the entries back that no client can remove, into a container that is replaced.
func (d *datastore) keep(w *mapping.World, l *mapping.List, old, tree map[string]any) {
	if l.Kept == nil {
		return
	}
	node := d.node(l)
	kept, there := l.Kept(w), d.byKey(node, tree, l)
	container := holder(tree, l)
	list, _ := container[l.Name].([]any)
	for key, entry := range d.byKey(node, old, l) {
		if there[key] == nil && slices.Contains(kept, key) {
			list = append(list, entry)
		}
	}
	container[l.Name] = list
}

// mayKnow returns an error for a client that could not have read the target: that an edit changes
// nothing would say what it is. An entry about a pod of Kubernetes, which is only compared, is no
// target.
func (d *datastore) mayKnow(seen *mapping.World, r request, lists []*mapping.List) error {
	ofPod := len(r.path) > 1 && r.path[0].Node.Name == "coe" && len(seen.Pods) > 0
	if _, _, err := d.look(seen, r, lists); err != nil && !ofPod {
		return datatree.Fail(datatree.AccessDenied, r.path.String(), r.user.Name+" may not read what is there")
	}
	return nil
}

// created is the path of a child that was made; of several entries, that of their parent.
func created(parent datatree.Path, child *datatree.Node, value any) datatree.Path {
	step := datatree.Step{Node: child}
	if list, ok := value.([]any); ok && child.Kind == datatree.List {
		if len(list) != 1 {
			return parent
		}
		step.Keys = datatree.SplitKey(child, datatree.Key(child, list[0].(map[string]any)))
	}
	return append(slices.Clip(parent), step)
}

// precondition compares the target that a client may read with what it expects.
func (d *datastore) precondition(seen *mapping.World, r request, lists []*mapping.List) error {
	if r.ifMatch == "" && r.ifNoneMatch == "" {
		return nil
	}
	_, tag, err := d.look(seen, r, lists)
	there := err == nil
	if err != nil && !errors.Is(err, &datatree.Error{Tag: datatree.InvalidValue}) {
		return err
	}
	if r.ifMatch != "" && (!there || !matches(r.ifMatch, tag)) ||
		r.ifNoneMatch != "" && there && matches(r.ifNoneMatch, tag) {
		return &datatree.Error{Tag: datatree.OperationFailed, Status: http.StatusPreconditionFailed,
			Path: r.path.String(), Message: "the data has changed: the entity-tag is another one"}
	}
	return nil
}

// matches reports whether a list of entity-tags has one.
func matches(list, tag string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t == "*" || t == tag {
			return true
		}
	}
	return false
}

// write brings a World to what the tree says, where that differs from the tree before.
func (d *datastore) write(w *mapping.World, lists []*mapping.List, old, tree map[string]any) error {
	for _, l := range lists {
		node := d.node(l)
		before, after := d.byKey(node, old, l), d.byKey(node, tree, l)
		for key, entry := range after {
			if reflect.DeepEqual(before[key], entry) {
				continue
			}
			at := datatree.EntryPath(node, datatree.SplitKey(node, key)...).String()
			if l.Write == nil && l.Edit == nil {
				return datatree.Fail(datatree.OperationNotSupported, at, "cannot be written: it is what Kubernetes has")
			}
			if err := datatree.Complete(node, entry, at); err != nil {
				return err
			}
			value, err := toStruct(node, l, entry)
			switch {
			case err != nil:
			case l.Edit != nil:
				err = l.Edit(w, node, entry)
			default:
				err = l.Write(w, value)
			}
			if err != nil {
				return below(at, err)
			}
		}
	}
	for _, l := range lists {
		node := d.node(l)
		before, after := d.byKey(node, old, l), d.byKey(node, tree, l)
		for key := range before {
			if after[key] != nil {
				continue
			}
			at := datatree.EntryPath(node, datatree.SplitKey(node, key)...).String()
			if l.Remove == nil {
				return datatree.Fail(datatree.OperationNotSupported, at, "cannot be removed: it is what Kubernetes has")
			}
			if err := l.Remove(w, key); err != nil {
				return below(at, err)
			}
		}
	}
	return nil
}

// below puts the path of an entry before that of a leaf in it.
func below(entry string, err error) error {
	var e *datatree.Error
	if !errors.As(err, &e) || strings.HasPrefix(e.Path, "/") {
		return err
	}
	path := strings.TrimSuffix(entry+"/"+e.Path, "/")
	return &datatree.Error{Tag: e.Tag, Status: e.Status, Path: path, Message: e.Message}
}

// byKey are the entries of a list without state, by their keys.
func (d *datastore) byKey(node *datatree.Node, tree map[string]any, l *mapping.List) map[string]map[string]any {
	byKey := map[string]map[string]any{}
	list, _ := holder(tree, l)[l.Name].([]any)
	for _, e := range list {
		entry, ok := datatree.Query{Content: datatree.Config}.Select(node, e).(map[string]any)
		if !ok {
			continue // the list is state
		}
		byKey[datatree.Key(node, entry)] = entry
	}
	return byKey
}
