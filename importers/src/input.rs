//! Files as streams of bytes: plain or gzip, told apart by content, with the errors that belong to each.
//!
//! This knows no format; what the bytes mean is the importers' matter.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::{Error, Result};

/// How much of a file an importer sees when it is asked whether it recognises it.
const HEAD_BYTES: usize = 64 * 1024;

/// The first bytes of a gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How much is decompressed at a time.
const GZIP_BYTES: usize = 16 * 1024;

/// Whether an importer recognises a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is of this format.
    Yes,
    /// It is not.
    No,
    /// It may be; reading it will tell.
    Maybe,
}

/// The beginning of a file, for recognising its format.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Vec<u8>,
    gzip: bool,
}

impl Head {
    /// The head of a file whose content begins with `bytes`, decompressed if it is `gzip`.
    pub fn new(bytes: Vec<u8>, gzip: bool) -> Self {
        Self { bytes, gzip }
    }

    /// Reads the head of `file`.
    ///
    /// A gzip file that breaks after some bytes still has a head; reading it whole will say where it breaks.
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let mut input = Input::open(file, false)?;
        let mut bytes = vec![0; HEAD_BYTES];
        let length = input.fill(&mut bytes)?;
        if length == 0 {
            return Err(input.damage.unwrap_or_else(|| Error::Empty { file: file.to_owned() }));
        }
        bytes.truncate(length);
        Ok(Self::new(bytes, input.is_gzip()))
    }

    /// The first bytes of the content, decompressed; the whole content if it is short.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the file itself is gzip.
    pub fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// Whether `text` occurs in it.
    pub fn contains(&self, text: &str) -> bool {
        // No text has no windows to look through.
        text.is_empty() || self.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// A file being read, decompressed on the way if it is gzip.
pub(crate) struct Input<'a> {
    file: &'a Path,
    stream: Stream,
    /// Whether damage of the compression is an error; else it is the end.
    strict: bool,
    damage: Option<Error>,
}

enum Stream {
    Plain(BufReader<File>),
    Gzip(Box<MultiGzDecoder<Counted<BufReader<File>>>>),
}

impl<'a> Input<'a> {
    /// Opens `file` at its beginning. Unless `strict`, gzip data that break off give what is before that.
    pub(crate) fn open(file: &'a Path, strict: bool) -> Result<Self> {
        let refused = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => Error::Missing { file: file.to_owned() },
            _ => Error::Unreadable { file: file.to_owned(), source },
        };
        let mut reader = BufReader::with_capacity(128 * 1024, File::open(file).map_err(refused)?);
        let stream = if reader.fill_buf().map_err(refused)?.starts_with(&GZIP_MAGIC) {
            // Several members in a row are one file to gzip, and so to us.
            Stream::Gzip(Box::new(MultiGzDecoder::new(Counted { inner: reader, consumed: 0 })))
        } else {
            Stream::Plain(reader)
        };
        Ok(Self { file, stream, strict, damage: None })
    }

    /// Reads content into `buffer` until that is full; fewer bytes only at the end.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < buffer.len() && self.damage.is_none() {
            let outcome = match &mut self.stream {
                Stream::Plain(reader) => reader.read(&mut buffer[length..]),
                Stream::Gzip(decoder) => {
                    // When the data turn out to be corrupt, what the same call decompressed before that is lost.
                    let end = buffer.len().min(length + GZIP_BYTES);
                    decoder.read(&mut buffer[length..end])
                }
            };
            match outcome {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => match self.explain(error) {
                    damage @ (Error::GzipTruncated { .. } | Error::GzipCorrupt { .. }) if !self.strict => {
                        self.damage = Some(damage);
                    }
                    error => return Err(error),
                },
            }
        }
        Ok(length)
    }

    /// What ended the content before its time, unless that was an error.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// The same, for an error.
    pub(crate) fn take_damage(&mut self) -> Option<Error> {
        self.damage.take()
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> &'a Path {
        self.file
    }

    fn is_gzip(&self) -> bool {
        matches!(self.stream, Stream::Gzip(_))
    }

    /// The decompressor reports its own findings as I/O errors of a few kinds; all others are the system's.
    fn explain(&self, source: io::Error) -> Error {
        let file = self.file.to_owned();
        match (&self.stream, source.kind()) {
            (Stream::Gzip(decoder), ErrorKind::UnexpectedEof) => {
                Error::GzipTruncated { file, byte: decoder.get_ref().consumed }
            }
            (Stream::Gzip(decoder), ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
                Error::GzipCorrupt { file, byte: decoder.get_ref().consumed, problem: source.to_string() }
            }
            _ => Error::Unreadable { file, source },
        }
    }
}

/// Counts the bytes taken from a reader.
struct Counted<R> {
    inner: R,
    consumed: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.consumed += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count as u64;
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn file_of(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn read_all(file: &Path) -> Result<Vec<u8>> {
        let mut input = Input::open(file, true)?;
        let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
        loop {
            match input.fill(&mut buffer)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Text that does not compress to nothing.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u64;
        (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect()
    }

    #[test]
    fn gzip_is_told_by_content_and_read_through() {
        let content = noise(300_000);
        let (plain, mut packed) = (file_of(&content), gzip(&content[..100_000]));
        packed.extend(gzip(&content[100_000..]));
        assert_eq!(read_all(plain.path()).unwrap(), content);
        assert_eq!(read_all(file_of(&packed).path()).unwrap(), content);
    }

    #[test]
    fn a_head_is_decompressed_and_short() {
        let content = noise(300_000);
        let head = Head::open(file_of(&gzip(&content)).path()).unwrap();
        assert!(head.is_gzip());
        assert_eq!(head.bytes(), &content[..HEAD_BYTES]);
        let head = Head::open(file_of(b"{}").path()).unwrap();
        assert_eq!((head.bytes(), head.is_gzip()), (&b"{}"[..], false));
    }

    #[test]
    fn a_cut_gzip_file_names_its_length() {
        let packed = gzip(&noise(50_000));
        for cut in [5, 1_000, packed.len() - 1] {
            match read_all(file_of(&packed[..cut]).path()) {
                Err(Error::GzipTruncated { byte, .. }) => assert_eq!(byte, cut as u64),
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_corrupt_gzip_file_says_so() {
        let mut packed = gzip(&noise(50_000));
        let last = packed.len() - 6;
        packed[last] ^= 0xff;
        assert!(matches!(read_all(file_of(&packed).path()), Err(Error::GzipCorrupt { .. })));
    }

    #[test]
    fn what_is_before_the_damage_is_given_unless_read_strictly() {
        let (content, mut buffer) = (noise(50_000), vec![0; 60_000]);
        let mut packed = gzip(&content);
        packed.truncate(30_000);
        let cut = file_of(&packed);
        let mut input = Input::open(cut.path(), false).unwrap();
        let length = input.fill(&mut buffer).unwrap();
        assert!(length > 20_000 && buffer[..length] == content[..length], "{length}");
        assert!(matches!(input.damage(), Some(Error::GzipTruncated { byte: 30_000, .. })));
        assert_eq!(input.fill(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn missing_empty_and_folder_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Head::open(&folder.path().join("no")), Err(Error::Missing { .. })));
        assert!(matches!(Head::open(folder.path()), Err(Error::Unreadable { .. })));
        assert!(matches!(Head::open(file_of(b"").path()), Err(Error::Empty { .. })));
        assert!(matches!(Head::open(file_of(&gzip(b"")).path()), Err(Error::Empty { .. })));
    }
}
