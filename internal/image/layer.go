// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File is one file of an image, owned by root. Exactly one of Source, Content and Link
// says what it is.
type File struct {
	// Path in the image, absolute. The directories on the way to it are made.
	Path string
	// Mode are the permission bits; 0 means 0755.
	Mode fs.FileMode
	// Source is a file of this machine.
	Source string
	// Content is the file's text.
	Content string
	// Link makes it a symbolic link to this target.
	Link string
}

// stream is the tar archive of files, in order of their paths, written while it is read.
func stream(files []File) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeLayer(w, files)) }()
	return r
}

func writeLayer(w io.Writer, files []File) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	t := tar.NewWriter(w)
	made := map[string]bool{".": true, "/": true}
	for _, f := range files {
		if err := writeParents(t, made, path.Dir(f.Path)); err != nil {
			return err
		}
		if err := f.write(t); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeParents(t *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := writeParents(t, made, path.Dir(dir)); err != nil {
		return err
	}
	return t.WriteHeader(header(tar.TypeDir, dir+"/", 0o755))
}

func (f File) write(t *tar.Writer) error {
	mode := f.Mode
	if mode == 0 {
		mode = 0o755
	}
	if f.Link != "" {
		h := header(tar.TypeSymlink, f.Path, 0o777)
		h.Linkname = f.Link
		return t.WriteHeader(h)
	}
	var data io.Reader = strings.NewReader(f.Content)
	size := int64(len(f.Content))
	if f.Source != "" {
		src, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		defer src.Close()
		info, err := src.Stat()
		if err != nil {
			return err
		}
		data, size = src, info.Size()
	}
	h := header(tar.TypeReg, f.Path, mode)
	h.Size = size
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(t, data)
	return err
}

func header(kind byte, name string, mode fs.FileMode) *tar.Header {
	return &tar.Header{
		Typeflag: kind,
		Name:     strings.TrimPrefix(name, "/"),
		Mode:     int64(mode.Perm()),
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatPAX,
	}
}
